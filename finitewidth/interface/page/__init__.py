"""The page: values checked in one function, answers by the library, trainings in child processes."""
