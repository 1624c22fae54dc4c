"""An Airflow on this machine, with the DAGs: its processes, and a client of its REST API."""
