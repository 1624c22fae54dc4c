"""The manifests of deploy/kubernetes: valid, closed, and about things that exist."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from nightjar.cli.app import app
from nightjar.configuration.settings import load_settings
from nightjar.notifications.routes import Webhook, load_routes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: list[dict[str, Any]] = [
    each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())
]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the specification of each pod."""
    for each in OBJECTS:
        spec = each["spec"].get("jobTemplate", each)["spec"]
        if "template" in spec:
            yield each["metadata"]["name"], spec["template"]["spec"]


@pytest.mark.parametrize("found", OBJECTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_kubernetes_knows_every_field(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_every_manifest_is_applied() -> None:
    assert {*KUSTOMIZATION["resources"], "kustomization.yaml"} == {file.name for file in FOLDER.glob("*.yaml")}


def test_no_pod_can_do_more_than_it_must() -> None:
    """No root, no writing but to its volumes, no token of the cluster's, and memory that is bounded."""
    for _, pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            context = container["securityContext"]
            assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_what_pods_name_exists() -> None:
    """Commands, settings, volumes, and the objects behind these; secrets are those that the head says how to make."""
    head = (FOLDER / "kustomization.yaml").read_text()
    made = {(each["kind"], each["metadata"]["name"]) for each in OBJECTS}
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for _, pod in pods():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["args"][0] in commands
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            own = [entry["name"] for entry in container["env"] if entry["name"].startswith("NIGHTJAR_")]
            known = {f"NIGHTJAR_{name.upper()}" for name in type(load_settings()).model_fields}
            assert set(own) <= known | {"NIGHTJAR_SETTINGS"}
        for volume in volumes.values():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in made
            if secret := volume.get("secret"):
                assert f"create secret generic {secret['secretName']} " in head
            if config := volume.get("configMap"):
                assert config["name"] in {each["name"] for each in KUSTOMIZATION["configMapGenerator"]}


def test_the_routes_are_read() -> None:
    """Their secrets are among those that the head says how to make."""
    target = load_routes(FOLDER / "routes.toml").targets["desk"]
    assert isinstance(target, Webhook)
    assert target.secret_file.parent == Path("/run/secrets/nightjar")
    assert f"--from-file={target.secret_file.name}" in (FOLDER / "kustomization.yaml").read_text()


def test_the_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTJAR_SETTINGS", str(FOLDER / "nightjar.toml"))
    settings = load_settings()
    assert (settings.bootstrap_servers, settings.buckets) == ("kafka.example:9093", 4)
