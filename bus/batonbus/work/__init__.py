"""Running a work item on the bus: its fleet as processes, its runs, its status."""
