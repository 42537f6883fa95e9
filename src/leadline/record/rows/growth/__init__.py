"""The law by which a quantity changes with depth, if a simple one describes it.

Every layer that has a value counts, layer 0 of a stream (the embedding) too, so that a law speaks
of the same values as the first and the last one that are shown beside it. The candidates:

    one law      flat; linear, root, inverse root, inverse, exponential; saturating; power
    a jump       one of these on one side of a step between two layers, and on the other side a
                 constant, or one or two layers at the beginning or one at the end on their own

Root is y² = a + b l: the updates of a stack are nearly orthogonal to the stream that they join, so
squares add up. The stream of a pre-norm or output-norm model before training grows so (Xiong et al.
2020, arXiv 2002.04745; De & Smith 2020, arXiv 2002.10444), and what is divided by its norm, a
gradient or the relative size of an update, falls as its inverse. Exponential is a product of equal
factors, as in a stack without norms. A power has no offset, so it is not defined at layer 0; it is
tried where the values, or those behind a jump, begin at layer 1.

All are compared by the Schwarz criterion with its correction for few values (McQuarrie 1999),

    n ln(RSS / n) + k n ln n / (n - k - 2),

where k counts every free number: the constants of the law, each layer that stands on its own, and
the place of a jump. The divisor is at least 1/2, so that four layers can still show a law of two
constants and a jump if it is nearly exact; where it would be negative there is no candidate. R² is
1 - RSS / TSS on the scale of the fit.

A candidate may be said when

- a flat side has a half range of at most FLAT_SPREAD of its mean, and no straight line, of the
  values or of their logarithm, explains DRIFT_R2 of its variance (of a side beside a jump only if
  it has DRIFT_BESIDE_A_JUMP values);
- another law explains LEAST_R2 of the variance of its side, also without its first and without its
  last value (one value far away makes any law look good), and changes from first to last as the
  values do, within a factor of two;
- the last value of an approach is not beyond its limit, or by no more than the other values scatter
  around the fit and not after three steps that all led there;
- a jump is at least LEAST_JUMP, JUMP_OVER_STEPS times the median step, and as many times what the
  fit leaves.

Of two laws that differ by less than TIE the one with fewer constants stands. If they have equally
many, only the change from first to last is said. A jump beside a trend has to win by CLEAR, and
so has a limit, which says something beyond the last layer. A power has to halve the miss of every
other law: the residuals of a sum of random updates are not independent, and the criterion then
favours the law that bends most freely. Series whose range is at most FLAT_RANGE of their mean are
flat. Where no candidate is left, a side that only its line keeps from being flat is said by its
change from first to last, if the line changes as much within a factor of two. Otherwise there is no
law. Fewer than 4 layers behind the embedding have no law.

The thresholds were set on series with seeds of their own (every law at several depths with noise of
1 % and 5 %, white noise, random walks) and on the lines of small models before training. There the
criterion without its correction and without CLEAR called some roots of 6 layers with 5 % noise
saturating and some smooth laws a jump; with both it was none, and of fresh seeds it is hardly any. A
power without the handicap took the streams of Gemma-2, whose squares grow by twice the width per
layer, for a power of nearly 1/2. Without the test on the end values more random walks were
exponential. With a JUMP_OVER_STEPS of 4 noise around a constant once showed a jump.

Two rules were added after lines of models before training had been called wrongly. A GPT-2 of 12
layers had block influences that fell steadily by a third and updates that grew by a half, all
"flat": hence DRIFT_R2. Noise around a constant passes it by chance, as often as the t distribution
says, and is then mostly said by its change alone. A stream of .159 .739 1.087 1.152 1.228 1.352
1.561 was "towards 1.45": hence the rule on limits, which also costs a few true approaches that
noise had hidden. The tests score fresh seeds.
"""

from leadline.record.rows.growth.fit import fit_growth
from leadline.record.rows.growth.words import Growth, Jump

__all__ = ["Growth", "Jump", "fit_growth"]
