"""The periodic job: counters to traffic skeletons to ping lists."""
