"""Stand-ins for loggers that are too large for the development environment: W&B, MLflow, Trackio.

Each does with rows, steps and active runs what the real library was seen to do: W&B 0.20.0 and 0.31.0 offline,
its files read back; MLflow 3.0.0 and 3.17.2 with a database; Trackio 0.40.0 and 0.43.0 with its database.
The sinks ran against these versions, too.
"""

import types


class WandbRun:
    """Rows as W&B writes them: one is open until a later step comes or somebody commits."""

    def __init__(self, **asked):
        self.asked = asked
        self.rows = {}
        self.dropped = []
        self.alerts = []
        self.axes = {}
        self.step = 0
        self.finished = False

    def define_metric(self, name, step_metric=None, hidden=None):
        self.axes[name] = step_metric

    def log(self, data, step=None, commit=None):
        assert not self.finished
        if step is not None and step < self.step:
            self.dropped.append(data)
            return
        if step is not None:
            self.step = step
        self.rows.setdefault(self.step, {}).update(data)
        if (step is None) if commit is None else commit:
            self.step += 1

    def alert(self, title, text, level):
        assert level in {"INFO", "WARN", "ERROR"}
        self.alerts.append((title, text, level))

    def finish(self):
        self.finished = True


def wandb():
    """The module wandb: `run` is the active run, and one made by reinit="create_new" is not."""
    module = types.ModuleType("wandb")
    module.run = None
    module.runs = []

    def init(project=None, name=None, reinit=None):
        module.runs.append(WandbRun(project=project, name=name))
        if reinit != "create_new":
            module.run = module.runs[-1]
        return module.runs[-1]

    module.init = init
    return module


def mlflow():
    """The module mlflow: one active run at a time; metrics wait until they are flushed."""
    module = types.ModuleType("mlflow")
    module.runs = {}
    module.waiting = []
    active = []

    def start_run(run_name=None):
        if active:
            raise RuntimeError("Run with UUID is already active.")
        run_id = f"run{len(module.runs)}"
        module.runs[run_id] = {"name": run_name, "status": "RUNNING", "metrics": [], "tags": {}}
        active.append(types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id)))
        return active[-1]

    def end_run(status="FINISHED"):
        module.runs[active.pop().info.run_id]["status"] = status

    def log_metrics(metrics, step=None, synchronous=None, run_id=None):
        assert not synchronous and run_id is not None
        module.waiting.append((run_id, step, metrics))

    def flush_async_logging():
        for run_id, step, metrics in module.waiting:
            module.runs[run_id]["metrics"].append((step, metrics))
        module.waiting.clear()

    class MlflowClient:
        def set_tag(self, run_id, key, value):
            assert len(value) <= 8000
            module.runs[run_id]["tags"][key] = value

        def set_terminated(self, run_id):
            module.runs[run_id]["status"] = "FINISHED"

    module.active_run = lambda: active[-1] if active else None
    module.start_run, module.end_run = start_run, end_run
    module.log_metrics, module.flush_async_logging = log_metrics, flush_async_logging
    module.MlflowClient = MlflowClient
    return module


class TrackioRun:
    """Rows of Trackio: any order of steps."""

    def __init__(self, **asked):
        self.asked = asked
        self.rows = []
        self.alerts = []
        self.finished = False

    def log(self, metrics, step=None):
        assert not self.finished
        self.rows.append((step, metrics))

    def alert(self, title, text=None, level=None):
        self.alerts.append((title, text, level))

    def finish(self):
        self.finished = True


def trackio():
    """The module trackio: `init` makes a run the active one, and `Run.finish` leaves it so."""
    module = types.ModuleType("trackio")
    module.runs = []
    module.AlertLevel = types.SimpleNamespace(INFO="info", WARN="warn", ERROR="error")

    class Variable:
        value = None

        def get(self):
            return self.value

    module.context_vars = types.SimpleNamespace(current_run=Variable())

    def init(project, name=None, resume="never"):
        module.runs.append(TrackioRun(project=project, name=name, resume=resume))
        module.context_vars.current_run.value = module.runs[-1]
        return module.runs[-1]

    def finish():
        module.context_vars.current_run.value.finish()
        module.context_vars.current_run.value = None

    module.init, module.finish = init, finish
    return module
