"""``steadyrnn certify``: what is proven of a trained network, or of plain weights in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ArgumentError, CertificateError

from .output import Output
from .parsing import add_flag, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser
    from torch import nn

    from steadyrnn.certificates.certify import AnyCertificate

    from .loading import Trained

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
        "Say with proof how fast a recurrent network forgets, how large its states get, what its gradients do.\n"
        "RUN is the folder of a run, or one above: then the newest below it. FILE.safetensors holds the weights of one\n"
        "RNN, GRU or LSTM under torch's names (weight_ih_l0, ...), with any prefix.",
        EXAMPLES,
    )
    made.add_argument("source", type=str, metavar="RUN|FILE", help="What to certify.")
    made.add_argument(
        "--input-bound", type=float | None, default=None,
        help="Bound on the 2-norm of every input; null is what was measured when the run was trained.",
    )  # fmt: skip
    made.add_argument("--checkpoint", type=str | None, default=None, help="best or last; null is the best there is.")
    made.add_argument(
        "--horizon", type=float | None, default=None, help="Also say after how many steps less than this is left."
    )
    made.add_argument(
        "--nonlinearity", type=str | None, default=None, help="Of an RNN in a FILE, which does not say it; null takes tanh."
    )
    made.add_argument(
        "--effort", type=str, default="auto",
        help="auto; full: every way to a proof at every width, which may take minutes; or fast: no further than what first "
        "proves a contraction. What was not tried is printed.",
    )  # fmt: skip
    add_flag(made, "--recheck", "Compare the certificate stored in the run with its weights instead.")
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own = parser()
    args = own.parse_args(argv)
    if args.horizon is not None and not args.horizon > 0:
        own.error(f"--horizon must be a number above 0, but is {args.horizon:g}.")
    output = Output(args.json)
    if Path(args.source).is_file():
        return _certify_file(args, output)

    from .loading import known_input_bound, load_trained, sequence_model

    if args.nonlinearity is not None:
        raise ArgumentError("`--nonlinearity` belongs to a FILE, but a run is given, which says what it has.")
    trained = load_trained(args.source, args.checkpoint)
    if args.recheck:
        return _recheck(trained, output)
    part = sequence_model(trained, CertificateError)
    bound, source = known_input_bound(args.input_bound, trained)
    return _print(output, _certify(part, bound, args.effort), args.horizon, str(trained.run.folder), source)


def _certify(module: "nn.Module", bound: float | None, effort: str) -> "AnyCertificate":
    from steadyrnn.certificates.certify import certify

    return certify(module, bound, effort=effort)


def _print(output: Output, certificate: "AnyCertificate", eps: float | None, name: str, source: str, **more: Any) -> int:
    output.text(
        "\n".join([name, str(certificate), f"input bound: {source}", *(f"{key}: {text}" for key, text in more.items())])
    )
    if eps is not None:
        more["horizon"] = {"eps": eps, "steps": certificate.horizon(eps)}
        output.text(f"after {more['horizon']['steps']} steps the state differs by at most {eps:g}, whatever came before")
    output.result({"source": name, "certificate": certificate.to_dict(), "input_bound": source, **more})
    return 0


def _recheck(trained: "Trained", output: Output) -> int:
    from steadyrnn.certificates.certify import recheck

    from .loading import sequence_model

    stored = trained.run.read_json("certificate.json")
    if not isinstance(stored, dict):
        raise CertificateError(f"`{trained.run.folder}` has a damaged `certificate.json`: it must hold a JSON object.")
    if stored.get("certificate") is None:
        raise CertificateError(f"`{trained.run.folder}` stores no certificate: {stored.get('reason')}")
    fresh = recheck(stored["certificate"], sequence_model(trained, CertificateError))
    output.text(
        f"{trained.run.folder}: the stored certificate is proven anew of the weights in checkpoint {trained.checkpoint}."
    )
    output.result({"source": trained.run.folder, "valid": True, "contraction": fresh.contraction, "stable": fresh.stable})
    return 0


def _certify_file(args: Any, output: Output) -> int:
    from steadyrnn.layers.rnn import RNN

    from .weights_file import layer_of_file

    if args.recheck:
        raise ArgumentError("`--recheck` needs a RUN, which stores a certificate, but a file is given.")
    if args.checkpoint is not None:
        raise ArgumentError("`--checkpoint` needs a RUN, which has several, but a file is given.")
    layer = layer_of_file(Path(args.source), args.nonlinearity)
    source = "none is given" if args.input_bound is None else "as given"
    assumed = {}
    if isinstance(layer, RNN):
        assumed["nonlinearity"] = "tanh, assumed: the file does not say" if args.nonlinearity is None else args.nonlinearity
    return _print(output, _certify(layer, args.input_bound, args.effort), args.horizon, args.source, source, **assumed)
