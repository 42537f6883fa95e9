"""Where models are trained: tasks, the trainer, sweeps and the engines that run their cells."""
