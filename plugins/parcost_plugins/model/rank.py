"""The sizes that one tensor-parallel rank works on, and how it runs and keeps things."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import frozen

from parcost import Formula, Memory, Moment, Pass, Real, Study
from parcost.numeric import maximum
from parcost_plugins.vocabulary import Gemm, Layout, Model, Stream, Training, layers

FP32 = 4.0  # bytes of what is kept in full precision whatever the recipe: losses, statistics
MASK = 1.0  # bytes of an element of a dropout mask

COUNTED = "counted from the tensors that each operator reads and writes"
SAVED = "Korthikanti et al. 2022, section 4.1, tensor by tensor"
SPLIT = "Shoeybi et al. 2019 (Megatron-LM), section 3"

_WHILE_ALIVE: tuple[Moment, ...] = ("forward", "backward")


@frozen(eq=False)
class Rank:
    """One rank of a tensor-parallel group, with one micro-batch."""

    layout: Layout
    training: Training
    model: Model
    layers: tuple[int, ...]  # of each virtual stage

    @property
    def tokens(self) -> Real:
        """Tokens of a micro-batch that are on this rank."""
        return self.sequence * self.training.micro_batch

    @property
    def sequence(self) -> Real:
        """Tokens of a sequence that are on this rank; attention meets the keys of all."""
        return self.training.sequence / self.layout.cp

    @property
    def element(self) -> Real:
        """Bytes of an element of an activation."""
        return self.training.precision.activation

    @property
    def kept_element(self) -> Real:
        """Bytes of an element of the input of a linear layer while it waits for backward."""
        return self.training.precision.kept

    @property
    def heads(self) -> Real:
        """Query heads of this rank."""
        return self.model.heads / self.layout.tp

    @property
    def kv_heads(self) -> Real:
        """Key and value heads of this rank; ranks beyond their number hold copies."""
        return maximum(self.model.kv_heads, self.layout.tp) / self.layout.tp

    @property
    def ffn(self) -> Real:
        """Columns of the MLP of this rank."""
        return self.model.ffn / self.layout.tp

    @property
    def vocabulary(self) -> Real:
        """Rows of the embedding of this rank, padding included."""
        return self.model.padded_vocabulary(self.layout) / self.layout.tp

    @property
    def residual_shards(self) -> Real:
        """Parts that the residual stream is cut into between the products."""
        return self.layout.tp if self.layout.sequence_parallel else 1.0

    @property
    def residual(self) -> Real:
        """Elements of the residual stream on this rank."""
        return self.tokens * self.model.hidden / self.residual_shards

    @property
    def residual_text(self) -> str:
        """The formula of those elements, in letters."""
        return "s b h / t" if self.layout.sequence_parallel else "s b h"

    @property
    def layer_again(self) -> bool:
        """Whether backward runs whole layers forward again."""
        return self.training.recompute == "full"

    @property
    def core_again(self) -> bool:
        """Whether backward runs the attention core forward again, as a pass of its own.

        A fused kernel keeps no scores: selective recomputation is built into it.
        """
        selective = self.training.recompute == "selective"
        return self.layer_again or (selective and not self.training.flash_attention)

    def saved(
        self, name: str, bytes_: Real, text: str, letters: str, *, again: bool = False
    ) -> Memory:
        """Return a tensor of a layer that backward needs.

        It is kept for every layer and micro-batch alive; where it is made *again*, only
        for the one layer that is being recomputed. *letters* are those of *text*.
        """
        formula = Formula(text=text, inputs=self.inputs(letters), source=SAVED)
        if again:
            return Memory(
                name=f"{name}, recomputed",
                bytes_=bytes_,
                formula=formula,
                count=[min(n, 1) for n in self.layers],
                once_per_device=True,
                moments=("backward",),
            )
        return self.kept(name, bytes_, formula, self.layers)

    def kept(self, name: str, bytes_: Real, formula: Formula, count: tuple[float, ...]) -> Memory:
        """Return memory that every micro-batch has from its forward to its backward pass."""
        return Memory(
            name=name,
            bytes_=bytes_,
            formula=formula,
            count=count,
            per_micro_batch=True,
            moments=_WHILE_ALIVE,
        )

    def inputs(self, letters: str) -> dict[str, tuple[Real, str]]:
        """Return the values of *letters*, separated by spaces, as a formula's inputs."""
        return {letter: _LETTERS[letter](self) for letter in letters.split()}


_LETTERS: dict[str, Callable[[Rank], tuple[Real, str]]] = {
    "s": lambda r: (r.sequence, ""),
    "b": lambda r: (r.training.micro_batch, ""),
    "h": lambda r: (r.model.hidden, ""),
    "a": lambda r: (r.model.heads, ""),
    "k": lambda r: (r.kv_heads * r.layout.tp, ""),
    "d": lambda r: (r.model.head_dim, ""),
    "f": lambda r: (r.model.ffn, ""),
    "V": lambda r: (r.vocabulary * r.layout.tp, ""),
    "t": lambda r: (r.layout.tp, ""),
    "e": lambda r: (r.element, "B"),
    "q": lambda r: (r.kept_element, "B"),
}


def rank_of(study: Study) -> Rank:
    """Return what a rank of *study* sees."""
    training = study[Training]
    return Rank(study[Layout], training, training.model, layers(study))


def linear(
    name: str,
    m: Real,
    n: Real,
    k: Real,
    count: tuple[float, ...],
    *,
    again: bool = False,
    host: str = "",
) -> Iterator[Gemm]:
    """Yield the products of a linear layer with *k* inputs and *n* outputs.

    Forward multiplies *m* tokens by the weights; backward multiplies the gradient of
    the output by the weights and by the input. All may carry the name of a *host*, for
    communication to hide under.
    """
    passes: list[tuple[Pass, Real, Real, Real]] = [
        ("F", m, n, k),
        ("B", m, k, n),
        ("W", n, k, m),
    ]
    if again:
        passes.append(("R", m, n, k))
    for pass_, rows, columns, inner in passes:
        yield Gemm(
            name=name,
            m=rows,
            n=columns,
            k=inner,
            pass_=pass_,
            count=count,
            host=host,
            source=SPLIT,
        )


def stream(
    name: str, forward: Real, backward: Real, count: tuple[float, ...], *, again: bool = False
) -> Iterator[Stream]:
    """Yield a memory-bound operator: the bytes that each of its passes moves."""
    passes: list[tuple[Pass, Real]] = [("F", forward), ("B", backward)]
    if again:
        passes.append(("R", forward))
    for pass_, bytes_ in passes:
        yield Stream(name=name, bytes_=bytes_, pass_=pass_, count=count, source=COUNTED)
