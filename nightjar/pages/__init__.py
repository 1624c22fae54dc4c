"""The pages: what the stream announced, why each alert exists, and what the nights found, for people with a browser.

application.py has the addresses; lake_reader.py what they show of the lake, live.py what arrives now; drawing.py the
figures; serving.py runs them on one machine. The plugin plugins/pages.py puts the same application into Airflow.
"""
