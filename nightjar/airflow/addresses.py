"""Where Airflow shows our pages. Imports nothing heavy."""

from urllib.parse import quote, urlsplit


def docs_address(run: str = "") -> str:
    """Where Airflow shows the data docs of a run's folder; empty if the setting `[api] base_url` is."""
    return _in_frame("index.html") + (f"#{quote(run)}" if run and _base() else "")


def backtest_address(folder: str) -> str:
    """Where Airflow shows the report of a backtest's folder; empty if the setting `[api] base_url` is."""
    return _in_frame(f"backtests/{quote(folder, safe='')}")


def _in_frame(page: str) -> str:
    base = _base()
    return f"{base}/plugin/data-docs{urlsplit(base).path}/data-docs/{page}" if base else ""


def _base() -> str:
    from airflow.sdk.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
