"""Heads on a frozen representation: DSLDA, LDA, NCM, Ridge and Prima.

The mathematics is in `heads/`; this module joins it to a backbone. The features of a batch are
computed once, the head learns from them, and its weights are solved when scores are requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from primavista.errors import InputError
from primavista.heads.base import Familiarity, Head
from primavista.heads.dslda import DSLDAHead, StreamingStatistics
from primavista.heads.lda import LDAHead
from primavista.heads.ncm import NCMHead
from primavista.heads.open_set import COSINE_THRESHOLD, KNOWN_THRESHOLD, LESSON_THRESHOLD
from primavista.heads.prima import LessonHead, LessonSample, LessonStatistics
from primavista.heads.prima_frames import FrameHead
from primavista.heads.ridge import RidgeHead
from primavista.heads.statistics import AnalyticHead, SufficientStatistics
from primavista.networks.base import Backbone
from primavista.networks.multidepth import (
    MiddleBackbone,
    MultiDepthBackbone,
    generic_frames,
    shipped_reference,
)
from primavista.nn.class_rows import ArrayBuffers
from primavista.nn.renorm import replace_batch_norm
from primavista.strategies.base import Batch, EmbeddingStrategy, LearnReport
from primavista.strategies.merging import MergeableStrategy
from primavista.strategies.naive import Naive
from primavista.strategies.option_types import Range, make_options
from primavista.strategies.options import Options

MAX_EXPAND = 2**15  # the largest number of random features of Ridge


@runtime_checkable
class Stackable(Protocol):
    """A strategy whose linear equations a caller may solve together with those of others.

    `bench/stacked.py` solves the equations of several runs as one stack.
    """

    def equations(self) -> tuple[Tensor, Tensor] | None:
        """Set up the equations w A = B, whose solution the scores need.

        Returns:
            A (D x D, positive definite) and B (K x D); None if they are solved already.
        """

    def accept_solution(self, w: Tensor) -> None:
        """Accept a solution of `equations`.

        Args:
            w: the solution, K x D.
        """


class FrozenStrategy(EmbeddingStrategy):
    """A head on the features of a backbone that does not train.

    Every group of arrays of the head becomes a module of the same name, so that `state_dict()` is
    complete; the head works on the buffers of these modules (`nn/class_rows.py`). A subclass calls
    `_use_head` once, at the end of its constructor.
    """

    known_from: float = KNOWN_THRESHOLD
    head: Head

    def _use_head(self, head: Head) -> None:
        """Make the arrays of a head part of the state, and its cache the cache of the strategy."""
        self.head = head
        head.derived = self.derived
        for name, group in head.groups.items():
            self.add_module(name, ArrayBuffers(group))

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers; a subclass may make this an option."""
        return True

    @torch.no_grad()
    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch: the head learns its features.

        Args:
            B: the batch, checked.

        Returns:
            The report; it has losses if the representation was tuned first.
        """
        losses = self._tune(B)
        columns = B.columns
        if not self.head.COLUMNS_ON_CPU:
            columns = columns.to(self.device, non_blocking=True)
        self.head.learn(self.features(B), columns, B.i)
        return LearnReport(B.i, B.count, B.new, losses)

    def _tune(self, B: Batch) -> tuple[float, ...]:
        """Train the representation first, if the strategy does so; return the losses by epoch."""
        return ()

    @torch.no_grad()
    def score_features(self, z: Tensor) -> Tensor:
        """Score features with the head.

        Args:
            z: the features of the backbone, N x D.

        Returns:
            N x len(classes).
        """
        scores: Tensor = self.head.scores(z, len(self.classes))
        return scores

    @torch.no_grad()
    def familiar(self) -> Familiarity | None:
        """Return the familiarity function.

        Returns:
            A function of `phi(z)` and the column of the highest score; None if the strategy does
            not recognise strangers.
        """
        return self.head.familiarity(len(self.classes))

    def phi(self, z: Tensor) -> Tensor:
        """Transform the features of the backbone into those that the head learns from.

        Args:
            z: the features of the backbone, N x D.

        Returns:
            The features of the head.
        """
        features: Tensor = self.head.features(z)
        return features


class AnalyticStrategy(MergeableStrategy, FrozenStrategy):
    """A strategy solved from sums: the order and grouping of the lessons do not matter."""

    head: AnalyticHead
    moments: ArrayBuffers[SufficientStatistics]  # the statistics, under their name in files

    def _merge(self, other: Self, columns: Tensor) -> None:
        self.head.merge(other.head, columns)


class _Discriminant(FrozenStrategy):
    """A linear discriminant, whose equations a caller may solve; see `Stackable`."""

    head: LDAHead | DSLDAHead

    def equations(self) -> tuple[Tensor, Tensor] | None:
        """Set up the equations w A = mu that are not solved yet; see `Stackable`."""
        if "solution" in self.derived or not len(self.classes):
            return None
        return self.head.equations(len(self.classes))

    def accept_solution(self, w: Tensor) -> None:
        """Accept a solution of `equations`.

        Args:
            w: the solution, classes x D.
        """
        self.derived["solution"] = self.head.weights(w, len(self.classes))


class NCM(AnalyticStrategy):
    """Classification by the nearest class mean; see `NCMHead`.

    Args:
        backbone: the network; a copy of it is kept.
        seed: kept in files; nothing is random.
    """

    def __init__(self, backbone: Backbone, *, seed: int = 0) -> None:
        super().__init__(backbone, seed=seed)
        self._use_head(NCMHead(SufficientStatistics.empty(self.backbone.dim, gram=False)))


@dataclass(frozen=True)
class LDAOptions:
    """The options of LDA.

    Args:
        shrinkage: the shrinkage of the covariance towards I (DSLDA has 1e-4); None for oracle
            approximating shrinkage towards m I.
    """

    shrinkage: float | None = None

    def __post_init__(self) -> None:
        """Reject an invalid shrinkage."""
        _check_in_range("shrinkage", self.shrinkage, 1e-12, 1, optional=True)


class LDA(AnalyticStrategy, _Discriminant):
    """Linear discriminant analysis with the exact pooled covariance; see `LDAHead`.

    Args:
        backbone: the network; a copy of it is kept.
        seed: kept in files; nothing is random.
        shrinkage: see `LDAOptions`.
    """

    head: LDAHead

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, shrinkage: float | None = None
    ) -> None:
        options = LDAOptions(shrinkage)
        super().__init__(backbone, seed=seed)
        self.options = options
        self._use_head(LDAHead(SufficientStatistics.empty(self.backbone.dim), shrinkage))


@dataclass(frozen=True)
class RidgeOptions:
    """The options of Ridge.

    Args:
        expand: the number of random features; None for the backbone's own features.
        balance: 1 to give every class the same weight, 0 to give every frame the same weight.
        rho: the regularisation, in units of the variance of a feature; None for the value with the
            highest evidence.
    """

    expand: int | None = None
    balance: float = 1.0
    rho: float | None = None

    def __post_init__(self) -> None:
        """Reject options that make no sense."""
        expand = self.expand
        if expand is not None and (type(expand) is not int or not 1 <= expand <= MAX_EXPAND):
            raise InputError(
                f"expand must be a number of random features from 1 to {MAX_EXPAND}, or None; "
                f"got {expand!r}"
            )
        _check_in_range("balance", self.balance, 0, 1)
        _check_in_range("rho", self.rho, 1e-8, 1e8, optional=True)


class Ridge(AnalyticStrategy):
    """Ridge regression, exact over the whole stream, with nothing to tune; see `RidgeHead`.

    Args:
        backbone: the network; a copy of it is kept.
        seed: seeds the random features.
        expand: see `RidgeOptions`.
        balance: see `RidgeOptions`.
        rho: see `RidgeOptions`.
    """

    head: RidgeHead

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        expand: int | None = None,
        balance: float = 1.0,
        rho: float | None = None,
    ) -> None:
        options = RidgeOptions(expand, balance, rho)
        super().__init__(backbone, seed=seed)
        self.options = options
        statistics = SufficientStatistics.empty(expand or self.backbone.dim)
        head = RidgeHead(statistics, expand=expand, balance=balance, rho=rho, seed=seed)
        self._use_head(head)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.head.seed = int(self.seed)  # the random features belong to the seed of the file


@dataclass(frozen=True)
class PrimaOptions:
    """The options of Prima. They exist for older files; a new learner has nothing to tune.

    Args:
        balance: 1 to give every class the same weight, 0 to give every frame the same weight;
            always 1 with `rule="lessons"`.
        rule: `lessons` weights each place by lessons that it has not seen (`LessonHead`); `frames`,
            the rule of version 0.1, weights it by the frames that it was fitted to (`FrameHead`).
    """

    balance: float = 1.0
    rule: str = "lessons"

    def __post_init__(self) -> None:
        """Reject options that make no sense."""
        _check_in_range("balance", self.balance, 0, 1)
        if self.rule not in ("lessons", "frames"):
            raise InputError(f"rule must be lessons or frames; got {self.rule!r}")
        if self.rule == "lessons" and self.balance != 1:
            raise InputError(
                f"balance {self.balance:g} is an option of version 0.1: leave it out, since every "
                "class has the same weight"
            )


class Prima(AnalyticStrategy):
    """One ridge regression per place of the backbone, weighted by lessons; see `LessonHead`.

    The places are the backbone's own features and the centre of its maps (`MiddleBackbone`). A
    lesson is all frames of a class in one batch or, if sessions are given, in one session of the
    batch. The result does not depend on the order of the lessons, on their grouping into batches or
    on merging. The state is one Gram matrix per place, 17 MB in float64 for MobileNet v1 (10.5 MB
    in files), and per class 41 kB for the sum and 164 kB for a few lessons.

    Args:
        backbone: the network; a copy of it is kept, and read at seven places.
        seed: kept in files; nothing is random.
        balance: see `PrimaOptions`.
        rule: see `PrimaOptions`.
    """

    head: LessonHead | FrameHead

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, balance: float = 1.0, rule: str = "lessons"
    ) -> None:
        options = PrimaOptions(balance, rule)
        if rule == "frames":
            deep = MultiDepthBackbone(backbone)
            super().__init__(deep, seed=seed)
            statistics = SufficientStatistics.empty(deep.dim, blocks=deep.sizes)
            self._use_head(FrameHead(statistics, balance))
            self.known_from = COSINE_THRESHOLD
        else:
            middle = MiddleBackbone(backbone)
            super().__init__(middle, seed=seed)
            like = torch.zeros(0)  # torch arrays: importing array-api-compat's numpy is slow
            lessons = LessonStatistics.empty(middle.dim, blocks=middle.sizes, like=like)
            sample = LessonSample.empty(middle.sizes, like=like)
            self._use_head(LessonHead(lessons, sample, middle.priors))
            self.known_from = LESSON_THRESHOLD
        self.options = options

    @torch.no_grad()
    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch, lesson by lesson.

        Args:
            B: the batch, checked.

        Returns:
            The report.
        """
        if not isinstance(self.head, LessonHead):
            return super().learn_batch(B)
        if not self.head.has_reference:
            self._set_reference(self.head)
        z, columns = self.features(B), B.columns.to(self.device)
        for lesson in _sessions(B):
            own = lesson.to(self.device)
            self.head.learn(z[own], columns[own], B.i)
        return LearnReport(B.i, B.count, B.new)

    def _set_reference(self, head: LessonHead) -> None:
        """Set the reference of familiarity: the shipped one, or else computed from 48 frames."""
        found = shipped_reference(self.backbone)
        if found is not None:
            head.sample.restore_reference(*found)
        else:
            frames = generic_frames(self.backbone.spec.size)
            head.set_reference(self.representation.features(frames, frozen=True))

    def prepare_like(self, other: Self) -> None:
        """Take over the reference of familiarity, which does not depend on what was taught.

        Args:
            other: a strategy with the same options and backbone.
        """
        if isinstance(self.head, LessonHead) and isinstance(other.head, LessonHead):
            self.head.take_reference(other.head)


def _sessions(B: Batch) -> Iterator[Tensor]:
    """Yield the indices of the frames of each session; of all frames if sessions are unknown."""
    if B.sessions is None:
        yield torch.arange(B.count)
        return
    for session in B.sessions.unique():
        yield (B.sessions == session).nonzero()[:, 0]


@dataclass(frozen=True)
class DSLDAOptions(Options):
    """The options of DSLDA (Table 4: shrinkage 1e-4, plastic covariance).

    The options of `Options`, apart from `norm` and `first_batch`, have an effect only with `tune`.

    Args:
        shrinkage: the shrinkage of the covariance towards I.
        tune: True to train the representation on batch 1 first, with a linear head that is then
            discarded.
        base_init: True to begin with the OAS covariance of batch 1, as its authors do.
        open_set: True to recognise strangers and calibrate the probabilities.
    """

    shrinkage: Annotated[float, Range(1e-12, 1)] = 1e-4
    tune: bool = False
    base_init: bool = False
    open_set: bool = False


class DSLDA(_Discriminant):
    """Deep streaming linear discriminant analysis (Hayes & Kanan 2020); see `DSLDAHead`.

    Args:
        backbone: the network; a copy of it is kept.
        seed: seeds the order of the patterns if the representation is tuned.
        options: the options; the defaults if None.
        overrides: options by name, which replace those in `options`.
    """

    OPTIONS = DSLDAOptions
    options: DSLDAOptions
    head: DSLDAHead
    statistics: ArrayBuffers[StreamingStatistics]

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        made = make_options(DSLDAOptions, options, overrides)
        super().__init__(backbone, seed=seed, first_batch=made.first_batch)
        self.options = made
        if made.norm == "brn":
            self._replace_batch_norm()
        statistics = StreamingStatistics.empty(self.backbone.dim)
        self._use_head(DSLDAHead(statistics, made.shrinkage, made.base_init, made.open_set))

    def _replace_batch_norm(self) -> None:
        """Replace batch norm by batch renormalisation, as in saved files; keep fixed weights."""
        weights = self.backbone.named_parameters()
        fixed = {name for name, weight in weights if not weight.requires_grad}
        self.backbone.body = replace_batch_norm(self.backbone.body)
        for name, weight in self.backbone.named_parameters():
            weight.requires_grad_(weight.requires_grad and name not in fixed)

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers: the option `open_set`."""
        return self.options.open_set

    @property
    def embeds(self) -> bool:
        """True if the representation is frozen, that is, unless the next batch tunes it."""
        return not (self.options.tune and self.i == 1)

    def _tune(self, B: Batch) -> tuple[float, ...]:
        """Train the representation on batch 1 like Naive, if the option `tune` is set."""
        if self.embeds:
            return ()
        capacity = max(self.options.capacity, len(self.classes))
        options = replace(self.options, head="linear", compat=None, capacity=capacity)
        naive = Naive(self.backbone, seed=int(self.seed), options=options).to(self.device)
        with torch.enable_grad():
            report = naive.learn(B.images, B.columns, progress=B.progress)
        self.backbone.load_state_dict(naive.backbone.state_dict())
        self.representation.trained(self.embedding_version)
        return report.losses


def _check_in_range(
    name: str, value: object, low: float, high: float, *, optional: bool = False
) -> None:
    """Reject an option that is not a number in a range; None is allowed if it is optional."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        none = ", or None" if optional else ""
        raise InputError(f"{name} must be a number from {low:g} to {high:g}{none}; got {value!r}")
