"""What reads a learner's text and traces is a limited process: `client` asks, `server` forks, `grader` is one."""
