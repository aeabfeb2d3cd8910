"""Say what is proven of a trained network, or of plain weights in a file."""

from dataclasses import dataclass, field
from pathlib import Path

from steadyrnn.certificates.certify import AnyCertificate, certify, recheck
from steadyrnn.errors import CertificateError
from steadyrnn.layers.rnn import RNN

from .loading import Trained, find_input_bound, load_trained, require_recurrent
from .weights_file import load_layer

__all__ = ["CertifiedNetwork", "Recheck", "certify_run", "certify_weights", "recheck_run", "recheck_trained"]


@dataclass(frozen=True)
class CertifiedNetwork:
    """A certificate, and what it is of.

    Args:
        source: The run folder or the file.
        certificate: What is proven.
        input_bound: Where the bound on the inputs comes from, in words.
        assumed: What the file does not say and was assumed, by name.
    """

    source: str
    certificate: AnyCertificate
    input_bound: str
    assumed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recheck:
    """A stored certificate that was proven anew of the weights in ``checkpoint``."""

    run: Path
    checkpoint: str
    certificate: AnyCertificate


def certify_run(
    path: str | Path, input_bound: float | None = None, *, checkpoint: str | None = None, effort: str = "auto"
) -> CertifiedNetwork:
    """Certify the network of a run.

    Args:
        path: The run folder, or one above: then the newest run below it.
        input_bound: Bound on the 2-norm of every input; None is what was measured when the run was trained.
        checkpoint: ``best`` or ``last``; None is the best there is.
        effort: ``"auto"``, ``"full"`` or ``"fast"``, as of :func:`steadyrnn.certify`.

    Example:
        >>> certify_run("runs").certificate.stable
        True
    """
    trained = load_trained(path, checkpoint)
    model = require_recurrent(trained, CertificateError)
    bound, source = find_input_bound(input_bound, trained)
    return CertifiedNetwork(str(trained.run.folder), certify(model, bound, effort=effort), source)


def certify_weights(
    path: str | Path, input_bound: float | None = None, *, nonlinearity: str | None = None, effort: str = "auto"
) -> CertifiedNetwork:
    """Certify the layer whose weights a safetensors file holds under torch's names.

    Args:
        path: The file; it is read, never executed.
        input_bound: Bound on the 2-norm of every input.
        nonlinearity: Of an RNN, which the file does not say; None assumes tanh.
        effort: ``"auto"``, ``"full"`` or ``"fast"``, as of :func:`steadyrnn.certify`.

    Example:
        >>> path = sr.save_weights(torch.nn.LSTM(2, 4), "lstm.safetensors")
        >>> certify_weights(path, input_bound=1.0).certificate.contraction > 0
        True
    """
    layer = load_layer(Path(path), nonlinearity)
    source = "none is given" if input_bound is None else "as given"
    assumed = {}
    if isinstance(layer, RNN):
        assumed["nonlinearity"] = "tanh, assumed: the file does not say" if nonlinearity is None else nonlinearity
    return CertifiedNetwork(str(path), certify(layer, input_bound, effort=effort), source, assumed)


def recheck_run(path: str | Path, checkpoint: str | None = None) -> Recheck:
    """Prove the certificate that a run stores anew of its weights.

    Raises:
        CertificateError: The run stores none, or its weights do not bear it out.

    Example:
        >>> recheck_run("runs").certificate.stable
        True
    """
    return recheck_trained(load_trained(path, checkpoint))


def recheck_trained(trained: Trained) -> Recheck:
    """Prove the certificate that a run stores anew of its weights, which are loaded already."""
    folder = trained.run.folder
    stored = trained.run.read_json("certificate.json")
    if not isinstance(stored, dict):
        raise CertificateError(f"`{folder}` has a damaged `certificate.json`: it must hold a JSON object.")
    if stored.get("certificate") is None:
        raise CertificateError(f"`{folder}` stores no certificate: {stored.get('reason')}")
    fresh = recheck(stored["certificate"], require_recurrent(trained, CertificateError))
    return Recheck(folder, trained.checkpoint, fresh)
