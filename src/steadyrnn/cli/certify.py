"""``steadyrnn certify``: what is proven of a trained network, or of plain weights in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ArgumentError

from .output import Output
from .parsing import add_flag, add_json, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from steadyrnn.jobs.certify import CertifiedNetwork

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn train addition --model stable-rnn --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn certify runs --input-bound 2",
    "steadyrnn certify runs --horizon 1e-3 --json",
    "steadyrnn certify runs --recheck",
)


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "certify",
        "Prove how fast a recurrent network forgets, how large its states get, and what its gradients do.\n"
        "RUN is the folder of a run, or a folder above it: then the newest run in it is used.\n"
        "FILE.safetensors holds the weights of one RNN, GRU or LSTM under torch's names (weight_ih_l0, ...), with any prefix.",
        EXAMPLES,
    )
    made.add_argument("source", type=str, metavar="RUN|FILE", help="What to certify.")
    made.add_argument(
        "--input-bound", type=float | None, default=None,
        help="Bound on the 2-norm of every input; null is what was measured when the run was trained.",
    )  # fmt: skip
    made.add_argument("--checkpoint", type=str | None, default=None, help="best or last; null is the best there is.")
    made.add_argument(
        "--horizon", type=float | None, default=None, help="Also print after how many steps states differ by at most this."
    )
    made.add_argument(
        "--nonlinearity", type=str | None, default=None, help="Activation of an RNN in a FILE, which lacks it; null is tanh."
    )
    made.add_argument(
        "--effort", type=str, default="auto",
        help="auto; full: every way to a proof at every width, which may take minutes; or fast: stop at the first "
        "proof of a contraction. What was not tried is printed.",
    )  # fmt: skip
    add_flag(made, "--recheck", "Compare the certificate stored in the run with its weights instead.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    if args.horizon is not None and not args.horizon > 0:
        own.error(f"--horizon must be a number above 0, but is {args.horizon:g}.")

    from steadyrnn.jobs.certify import certify_run, certify_weights

    if Path(args.source).is_file():
        if args.recheck:
            raise ArgumentError("`--recheck` needs a RUN, which stores a certificate, but a file is given.")
        if args.checkpoint is not None:
            raise ArgumentError("`--checkpoint` needs a RUN, which has several, but a file is given.")
        found = certify_weights(args.source, args.input_bound, nonlinearity=args.nonlinearity, effort=args.effort)
        return _print(Output(args.json), found, args.horizon)
    if args.nonlinearity is not None:
        raise ArgumentError("`--nonlinearity` belongs to a FILE, but a run is given, which says what it has.")
    if args.recheck:
        return _recheck(args)
    found = certify_run(args.source, args.input_bound, checkpoint=args.checkpoint, effort=args.effort)
    return _print(Output(args.json), found, args.horizon)


def _print(output: Output, found: "CertifiedNetwork", eps: float | None) -> int:
    certificate = found.certificate
    assumed = [f"{name}: {text}" for name, text in found.assumed.items()]
    output.text("\n".join([found.source, str(certificate), f"input bound: {found.input_bound}", *assumed]))
    more: dict[str, Any] = {}
    if eps is not None:
        more["horizon"] = {"eps": eps, "steps": certificate.horizon(eps)}
        output.text(f"after {more['horizon']['steps']} steps the state differs by at most {eps:g}, whatever came before")
    told = {"source": found.source, "certificate": certificate.to_dict(), "input_bound": found.input_bound}
    output.result({**told, **found.assumed, **more})
    return 0


def _recheck(args: Any) -> int:
    from steadyrnn.jobs.certify import recheck_run

    found, output = recheck_run(args.source, args.checkpoint), Output(args.json)
    output.text(f"{found.run}: the stored certificate is proven anew of the weights in checkpoint {found.checkpoint}.")
    proven = {"contraction": found.certificate.contraction, "stable": found.certificate.stable}
    output.result({"source": found.run, "valid": True, **proven})
    return 0


main = make_main(parser, _run)
