"""The container file and the manifests: linted, held to the schemas of their owners, and true to the product."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, environment_folder

DEPLOY = ROOT / "deploy"
KUBERNETES = "1.31"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KSERVE = sorted((DEPLOY / "kserve").glob("*.yaml"))
HERE = Path(__file__).parent


def tool(name: str) -> Path:
    return environment_folder("deploy") / "bin" / name


def run(*command: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], input=stdin, capture_output=True, text=True, timeout=120, check=False)


def documents(path: Path) -> list[dict]:
    """The YAML documents of a file; PyYAML is in the environment that checks them."""
    code = "import json, sys, yaml; json.dump([d for d in yaml.safe_load_all(open(sys.argv[1])) if d], sys.stdout)"
    done = run(tool("python"), "-c", code, path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def containers(path: Path) -> list[dict]:
    found = []
    for document in documents(path):
        spec = document.get("spec", {})
        pod = spec.get("predictor") or spec.get("template", {}).get("spec", {})
        found.extend(pod.get("containers", []))
    return found


SERVERS = [p for p in MANIFESTS + KSERVE if "kind: Deployment\nmetadata" in p.read_text() or "InferenceService" in p.read_text()]


def test_hadolint_has_nothing_to_say():
    done = run(tool("hadolint"), DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout
    # It would have: a container file that breaks its rules.
    assert run(tool("hadolint"), "-", stdin="FROM debian\nRUN cd /x\n").returncode != 0


def test_the_scripts_of_the_container_file_exist():
    """No container engine runs in these tests; what its steps call is run by test_archive and the end-to-end tests."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert "scripts/package.sh --out" in text and (ROOT / "scripts/package.sh").is_file()
    assert "/package/install.sh /opt/tritonserver" in text and (ROOT / "scripts/package/install.sh").is_file()
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    assert f"triton-spleenseg-{version}-linux-x86_64" in text


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda p: p.name)
def test_kubernetes_manifests_fit_their_schemas(manifest):
    done = run(tool("kubernetes-validate"), "--strict", "--kubernetes-version", KUBERNETES, manifest)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_manifest_is_found(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((DEPLOY / "kubernetes" / "cpu.yaml").read_text().replace("readinessProbe", "readynessProbe"))
    assert run(tool("kubernetes-validate"), "--strict", "--kubernetes-version", KUBERNETES, wrong).returncode != 0


@pytest.mark.parametrize("manifest", KSERVE, ids=lambda p: p.name)
def test_kserve_manifests_fit_kserves_own_models(manifest):
    done = run(tool("python"), HERE / "kserve_check.py", manifest)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("minReplicas: 1", "minReplica: 1"), ("timeout: 600", "timeout: soon"), ("containerPort: 8000", "containerPorts: 8000"), ("path: /v2/health/live", "paths: /x")],
)
def test_a_wrong_kserve_manifest_is_found(tmp_path, right, wrong):
    text = KSERVE[0].read_text()
    assert right in text
    changed = tmp_path / "wrong.yaml"
    changed.write_text(text.replace(right, wrong))
    assert run(tool("python"), HERE / "kserve_check.py", changed).returncode != 0


@pytest.mark.parametrize("manifest", SERVERS, ids=lambda p: p.name)
def test_servers_have_probes_limits_and_no_rights(manifest):
    (container,) = containers(manifest)
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    assert "memory" in container["resources"]["requests"] and "memory" in container["resources"]["limits"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    restricted = [a for a in container["args"] if a.startswith(("--http-restricted-api", "--grpc-restricted-protocol"))]
    assert len(restricted) == 2 and all("shared-memory" in a and "model-repository" in a for a in restricted)


@pytest.mark.parametrize("manifest", SERVERS, ids=lambda p: p.name)
def test_servers_ask_for_huge_pages_as_the_image_and_serve_sh_do(manifest):
    (container,) = containers(manifest)
    assert {"name": "THP_MEM_ALLOC_ENABLE", "value": "1"} in container["env"]
    assert "\nENV THP_MEM_ALLOC_ENABLE=1\n" in (DEPLOY / "Dockerfile").read_text()
    assert "THP_MEM_ALLOC_ENABLE=${THP_MEM_ALLOC_ENABLE:-1} " in (ROOT / "scripts/lib/server.sh").read_text()


def test_what_is_labelled_is_what_is_selected():
    labels = {}
    for path in MANIFESTS:
        for document in documents(path):
            spec = document["spec"]
            if document["kind"] == "Deployment":
                labels = spec["template"]["metadata"]["labels"]
                assert spec["selector"]["matchLabels"].items() <= labels.items()
    for document in documents(DEPLOY / "kubernetes" / "common.yaml"):
        spec = document["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        selector = selector.get("matchLabels", selector)
        assert selector and selector.items() <= labels.items(), document["metadata"]["name"]
    (scaler,) = documents(DEPLOY / "kubernetes" / "autoscaling.yaml")
    names = [d["metadata"]["name"] for d in documents(DEPLOY / "kubernetes" / "cpu.yaml")]
    assert scaler["spec"]["scaleTargetRef"]["name"] in names


def test_the_gpu_variant_has_the_configuration_that_it_names():
    (container,) = containers(DEPLOY / "kubernetes" / "gpu.yaml")
    (name,) = [a.partition("=")[2] for a in container["args"] if a.startswith("--model-config-name=")]
    config = (ROOT / "models" / "segmentation_3d" / "configs" / f"{name}.pbtxt").read_text()
    assert "KIND_GPU" in config
    # It differs from the other in the instances alone.
    def rest(text: str) -> str:
        return re.sub(r"instance_group \[.*?\n\]\n", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE), flags=re.DOTALL)
    assert rest(config) == rest((ROOT / "models" / "segmentation_3d" / "config.pbtxt").read_text())
