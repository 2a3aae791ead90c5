"""Holds the InferenceServices of a YAML file to KServe's own models: every field known, of its type, the required ones there.

The classes of the packages kserve and kubernetes say for each field its type and its name in JSON. Only kserve.models is imported: the rest of
kserve is a server with dependencies of its own.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import yaml

package = types.ModuleType("kserve")
package.__path__ = list(importlib.util.find_spec("kserve").submodule_search_locations)
sys.modules["kserve"] = package

import kserve.models  # noqa: E402: after the package has been replaced
import kubernetes.client  # noqa: E402

SCALARS = {"str": str, "int": int, "float": (int, float), "bool": bool, "datetime": str, "date": str}


def check(value: object, kind: str, where: str) -> list[str]:
    """What is wrong with a value that should be of this kind."""
    if kind == "object":
        return []
    if listed := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{where}: a list is expected, found {value!r}"]
        return [e for n, entry in enumerate(value) for e in check(entry, listed[1], f"{where}[{n}]")]
    if mapped := re.fullmatch(r"dict\(str, (.+)\)|Dict\[str, (.+)\]", kind):
        if not isinstance(value, dict):
            return [f"{where}: a mapping is expected, found {value!r}"]
        return [e for key, entry in value.items() for e in check(entry, mapped[1] or mapped[2], f"{where}.{key}")]
    if kind in SCALARS:
        fits = isinstance(value, SCALARS[kind]) and (kind == "bool" or not isinstance(value, bool))
        return [] if fits else [f"{where}: {kind} is expected, found {value!r}"]
    model = getattr(kserve.models, kind, None) or getattr(kubernetes.client, kind, None)
    if model is None:
        # A quantity or a port: a text or a number, with no class of its own.
        return [] if isinstance(value, (str, int)) else [f"{where}: no model {kind}"]
    if not isinstance(value, dict):
        return [f"{where}: {kind} is expected, found {value!r}"]
    fields = {json: field for field, json in model.attribute_map.items()}
    errors = [f"{where}: unknown field {key!r}" for key in value if key not in fields]
    for key in value.keys() & fields.keys():
        errors += check(value[key], model.openapi_types[fields[key]], f"{where}.{key}")
    if not errors:
        try:
            model(**{fields[key]: entry for key, entry in value.items()})
        except ValueError as error:
            errors.append(f"{where}: {error}")
    return errors


def main() -> None:
    errors = []
    for document in yaml.safe_load_all(Path(sys.argv[1]).read_text()):
        if document["apiVersion"] != "serving.kserve.io/v1beta1" or document["kind"] != "InferenceService":
            errors.append(f"{document['apiVersion']} {document['kind']}; expected is an InferenceService of v1beta1")
        errors += check(document, "V1beta1InferenceService", document["metadata"]["name"])
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
