"""Functions that stand in for the playground and the lessons; they run in processes of the lab."""

import os
import time

from leadline.errors import InputError, RecipeError


def knobs_json():
    presets = [{"id": "post-against-pre"}]
    return {"knobs": [{"name": "depth"}], "presets": presets, "quantities": []}


def curve_parts(design):
    depth = design.get("depth", 24)
    if depth == "hang":
        time.sleep(600)
    if depth == "die":
        os._exit(7)
    if depth == "slow":
        time.sleep(0.3)
    if depth == "print":
        print("part 1 {}", flush=True)  # what a model prints is no answer
    if depth == 7:
        yield {"part": "error", "knob": "heads", "reason": "Told and not raised."}
        return
    if depth == 5:
        error = RecipeError("The width 64 cannot be divided among 5 heads.")
        error.knob = "heads"
        raise error
    if depth == "break":
        yield {"part": "curves", "curves": []}
        raise RecipeError("Broken on the way.")
    if depth == "nan":
        yield {"part": "curves", "curves": [float("nan")]}
    yield {"part": "curves", "design": design, "curves": []}
    yield {"part": "laws", "laws": [], "process": os.getpid()}
    yield {"part": "verdict", "verdict": {"level": "note", "sentence": "<b>深い</b>"}}
    if depth == "end":
        yield {"part": "end"}


def train_live(design, settings, control):
    if design.get("depth") == "hang":
        yield {"event": "step", "step": 0}
        time.sleep(600)
    if design.get("depth") == "refuse":
        raise InputError("No task is called that.")
    for step in range(settings["steps"]):
        control.tell({"event": "step", "step": step, "loss": 1 / (step + 1)})
        if settings.get("pause"):
            time.sleep(settings["pause"])
    yield {"event": "end", "reason": "all steps done"}


def lessons_json(language):
    return [{"id": "skip", "title": {"en": "Skips", "zh": "捷径", "ru": "Пропуски"}[language]}]


def lesson_json(name, language):
    if name != "skip":
        raise InputError(f"No lesson is called {name}.")
    return {"title": language, "parts": []}
