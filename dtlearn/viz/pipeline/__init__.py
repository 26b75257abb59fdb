"""Pictures of pipelines: a schedule as a grid, a recorded run as a Gantt chart, live activations, bubble and memory."""
