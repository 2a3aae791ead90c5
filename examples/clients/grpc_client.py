"""A spleen mask over gRPC. Usage: grpc_client.py CT.nii.gz MASK.nii.gz [HOST:PORT]
pip install "tritonclient[grpc]" nibabel. The model's volume is in RAS; scripts/segment.py shows how any other order is turned."""

import json
import sys

import nibabel
import numpy as np
import tritonclient.grpc as triton

scan = nibabel.as_closest_canonical(nibabel.load(sys.argv[1]))
ct = np.ascontiguousarray(scan.dataobj, dtype=np.float32)[None]  # Hounsfield units, [1, H, W, D]

# gRPC's own limit for an answer is 4 MB. tritonclient raises it to 2 GB by itself; other clients need these two options.
largest = 2**31 - 1
options = [("grpc.max_send_message_length", largest), ("grpc.max_receive_message_length", largest)]
address = sys.argv[3] if len(sys.argv) > 3 else "localhost:8001"
with triton.InferenceServerClient(address, channel_args=options) as client:
    request = triton.InferInput("INPUT0", list(ct.shape), "FP32")
    request.set_data_from_numpy(ct)
    spacing = ",".join(map(str, scan.header.get_zooms()[:3]))
    reply = client.infer(
        "spleen_seg_native",
        [request],
        outputs=[triton.InferRequestedOutput("MASK_NATIVE")],
        parameters={"spacing": spacing},
        client_timeout=600,
    )

mask = reply.as_numpy("MASK_NATIVE")[0, 0]  # of [1, 1, H, W, D]: the scan's own voxels
print("volume, mL:", json.loads(reply.get_response().parameters["volume_ml"].string_param)[0])  # one entry a volume
nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), scan.affine), sys.argv[2])
