"""A spleen mask over HTTP. Usage: http_client.py CT.nii.gz MASK.nii.gz [HOST:PORT]
pip install "tritonclient[http]" nibabel. The model's volume is in RAS; scripts/segment.py shows how any other order is turned."""

import json
import sys

import nibabel
import numpy as np
import tritonclient.http as triton

scan = nibabel.as_closest_canonical(nibabel.load(sys.argv[1]))
ct = np.ascontiguousarray(scan.dataobj, dtype=np.float32)[None]  # Hounsfield units, [1, H, W, D]

# A volume of 120 MB and a network that takes seconds need more patience than the default of 60 s.
with triton.InferenceServerClient(sys.argv[3] if len(sys.argv) > 3 else "localhost:8000", network_timeout=600) as client:
    request = triton.InferInput("INPUT0", list(ct.shape), "FP32")
    request.set_data_from_numpy(ct)  # binary, never JSON numbers
    spacing = ",".join(map(str, scan.header.get_zooms()[:3]))
    reply = client.infer(
        "spleen_seg_native",
        [request],
        outputs=[triton.InferRequestedOutput("MASK_NATIVE")],
        parameters={"spacing": spacing},
    )

mask = reply.as_numpy("MASK_NATIVE")[0, 0]  # of [1, 1, H, W, D]: the scan's own voxels
print("volume, mL:", json.loads(reply.get_response()["parameters"]["volume_ml"])[0])  # one entry a volume
nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), scan.affine), sys.argv[2])
