"""Programs that ranks run are no tests themselves."""

collect_ignore = ["agreeing.py", "alone.py", "differentiating.py", "disagreeing.py", "dying.py"]
