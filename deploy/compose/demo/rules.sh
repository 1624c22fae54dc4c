#!/bin/sh
# Publishes the example rules. They apply from three days ago on, so that they find something in the simulated history.
set -eu
python - >/tmp/rules.yaml <<'END'
import datetime
import sys

import yaml

since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
with open("examples/rules.yaml", encoding="utf-8") as file:
    rules = [{**rule, "effective": since.strftime("%Y-%m-%dT00:00:00Z")} for rule in yaml.safe_load_all(file) if rule]
yaml.safe_dump_all(rules, sys.stdout, sort_keys=False)
END
nightjar rules list --all --json | grep -q '"card-cloned"' || exec nightjar rules publish /tmp/rules.yaml --reason demonstration --wait
