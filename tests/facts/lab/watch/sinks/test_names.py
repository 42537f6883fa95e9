"""Scalars are named by layer and role, so that loggers group and sort them."""

import math
import re

from leadline.instruments.passes.probes.attention import ENTROPY, LOGIT_SPAN, LOGIT_STD
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.gauges import LayerGauges
from leadline.lab.watch.sinks import scalars
from leadline.record import Quantity, Reading, Site
from leadline.record.rows.site import OUTSIDE, RUN
from leadline.record.run.watching import OF_THE_RUN, OF_THE_WEIGHTS


def names(*pairs):
    return list(scalars([Reading(quantity, site, "mean", 1.0) for quantity, site in pairs]))


def test_quantities_of_the_run_stand_at_the_top():
    assert names(
        ("train.loss", RUN), ("train.gradient_norm", RUN), ("output.log_z", RUN), ("plain", RUN)
    ) == ["leadline/loss", "leadline/gradient_norm", "leadline/log_z", "leadline/plain"]


def test_a_write_is_named_by_its_layer_and_its_role():
    assert names(
        ("stream.norm", Site("decoder", 0)),
        ("stream.norm", Site("decoder", 3)),
        ("update.ratio", Site("decoder", 3, 1, "attention")),
        ("update.ratio", Site("decoder", 3, 2, "mlp")),
        ("weights.update_ratio", Site("decoder", 3, 2, "mlp")),
        ("gradient.parameters", Site("decoder", 3, point="block")),
    ) == [
        "leadline/layer_00/stream_norm",
        "leadline/layer_03/stream_norm",
        "leadline/layer_03/attention/update_ratio",
        "leadline/layer_03/mlp/update_ratio",
        "leadline/layer_03/mlp/weights_update_ratio",
        "leadline/layer_03/gradient_parameters",
    ]


def test_two_writes_of_one_role_are_told_apart_by_their_number():
    assert names(
        ("update.ratio", Site("decoder", 1, 1, "mlp")),
        ("update.ratio", Site("decoder", 1, 3, "mlp")),
        ("update.ratio", Site("decoder", 2, 1, "mlp")),
    ) == [
        "leadline/layer_01/mlp_1/update_ratio",
        "leadline/layer_01/mlp_3/update_ratio",
        "leadline/layer_02/mlp/update_ratio",
    ]


def test_several_stacks_are_named():
    assert names(
        ("stream.norm", Site("encoder", 1)),
        ("stream.norm", Site("decoder", 1)),
        ("train.loss", RUN),
    ) == [
        "leadline/encoder/layer_01/stream_norm",
        "leadline/decoder/layer_01/stream_norm",
        "leadline/loss",
    ]


def test_a_tensor_outside_of_the_blocks_keeps_its_path_and_makes_no_second_stack():
    assert names(
        ("weights.update_ratio", Site(OUTSIDE, 0, point="model.embed_tokens.weight")),
        ("stream.norm", Site("decoder", 1)),
    ) == [
        "leadline/model/model.embed_tokens.weight/weights_update_ratio",
        "leadline/layer_01/stream_norm",
    ]


def test_layers_sort_by_letters_as_by_depth():
    deep = names(*(("stream.norm", Site("decoder", layer)) for layer in range(101)))
    assert deep == sorted(deep)
    assert deep[3] == "leadline/layer_003/stream_norm"


def test_heads_lanes_tokens_and_streams_inside_of_a_block_are_left_out():
    inside = [
        Site("decoder", 1, 1, "attention", head=1),
        Site("decoder", 1, lane=1),
        Site("decoder", 1, token=1),
        Site("decoder", 1, rank=1),
        Site("decoder", 1, example=1),
        Site("decoder", 1, hops=1),
        Site("decoder", 1, 1, "stream"),
    ]
    assert names(*(("stream.norm", site) for site in inside)) == []


def test_with_definitions_the_headline_statistic_alone_is_taken():
    norm = Quantity("stream.norm", "Norm", "x", "|x|", headline="mean")
    site = Site("decoder", 1)
    readings = [Reading(norm.name, site, "median", 2.0), Reading(norm.name, site, "mean", 3.0)]
    assert scalars(readings, {norm.name: norm}) == {"leadline/layer_01/stream_norm": 3.0}


def test_values_beyond_float64_and_not_finite_ones_pass():
    big = Reading("a.b", RUN, "value", 1.0, exponent=5000)
    assert scalars([big]) == {"leadline/b": math.inf}
    assert math.isnan(scalars([Reading("a.b", RUN, "value", math.nan)])["leadline/b"])


def test_loggers_take_every_name():
    """MLflow: alphanumerics, underscores, dashes, periods, spaces, colons and slashes."""
    (name,) = names(("a.b", Site(OUTSIDE, 0, point="Gewicht[0] ß*.w-1")))
    assert name == "leadline/model/Gewicht_0____.w-1/a_b"
    assert re.fullmatch(r"[\w.\- :/]+", name, re.ASCII)


def test_no_two_gauges_of_a_watch_share_a_name():
    of_layers = [*LayerGauges.quantities, *OF_THE_WEIGHTS, PARAMETERS, LOGIT_STD, LOGIT_SPAN]
    site = Site("decoder", 1, 1, "attention")
    pairs = [(one.name, site) for one in (*of_layers, ENTROPY)]
    pairs += [(one.name, RUN) for one in OF_THE_RUN]
    assert len(set(names(*pairs))) == len(pairs)
