"""The names under which a run's readings appear in TensorBoard, W&B and other loggers.

    leadline/loss                                   a quantity of the run: train.loss
    leadline/layer_03/stream_norm                   the stream behind block 3; layer_00 enters block 1
    leadline/layer_03/attention/update_ratio        a write of block 3, by its role
    leadline/layer_03/mlp_2/update_ratio            by role and number, where a block has two of one role
    leadline/encoder/layer_03/stream_norm           where a model has several stacks
    leadline/model/lm_head.weight/weights_update_ratio      a tensor outside of the blocks

Loggers group by slashes and sort by letters, so a layer has as many digits as the deepest one of
the sample, at least two. The dot of a quantity's name becomes an underscore; of a quantity of the
run the part behind the dot is enough. What a logger would refuse becomes an underscore, too: MLflow
takes letters of ASCII, digits and `_-. :/`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from leadline.record import Quantity, Reading, Site
from leadline.record.rows.site import OUTSIDE, RUN

__all__ = ["scalars"]

_REFUSED = re.compile(r"[^A-Za-z0-9_.\-/]")


def scalars(
    readings: Iterable[Reading], quantities: Mapping[str, Quantity] | None = None
) -> dict[str, float]:
    """Return the readings of one step as named scalars, one of every quantity at every site.

    Heads, lanes, tokens and the stream between two writes of a block are left out; they are in the
    record. With the definitions of the quantities only headline statistics are taken.
    """
    kept = [
        one
        for one in readings
        if _stands_for_its_site(one.site)
        and (quantities is None or one.statistic == quantities[one.quantity].headline)
    ]
    places = _places({one.site for one in kept})
    return {f"leadline/{places[one.site]}{_quantity_name(one)}": one.number for one in kept}


def _stands_for_its_site(site: Site) -> bool:
    axes = (site.head, site.lane, site.token, site.rank, site.example, site.hops)
    return axes == (None,) * 6 and (site.point != "stream" or site.sublayer is None)


def _quantity_name(reading: Reading) -> str:
    name = reading.quantity
    return _clean(name.partition(".")[2] or name if reading.site == RUN else name.replace(".", "_"))


def _places(sites: Iterable[Site]) -> dict[Site, str]:
    """Return the middle of the name for each site, empty or with a slash at its end."""
    sites = list(sites)
    inside = [site for site in sites if site != RUN and site.stack != OUTSIDE]
    several = len({site.stack for site in inside}) > 1
    digits = max([2, *(len(str(site.layer)) for site in inside)])
    writes: defaultdict[tuple[str, int, str], set[int | None]] = defaultdict(set)
    for site in inside:
        writes[site.stack, site.layer, site.point].add(site.sublayer)

    def place(site: Site) -> str:
        if site == RUN:
            return ""
        if site.stack == OUTSIDE:
            return f"{OUTSIDE}/{_clean(site.point)}/"
        parts = [_clean(site.stack)] if several else []
        parts.append(f"layer_{site.layer:0{digits}d}")
        if site.sublayer is not None:
            twice = len(writes[site.stack, site.layer, site.point]) > 1
            parts.append(_clean(f"{site.point}_{site.sublayer}" if twice else site.point))
        return "/".join(parts) + "/"

    return {site: place(site) for site in sites}


def _clean(name: str) -> str:
    return _REFUSED.sub("_", name)
