"""Pipeline schedules: op orders, and closed forms where one is proven."""
