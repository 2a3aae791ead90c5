"""A spleen mask over system shared memory: client and server on one machine, no limit of 2 GB, no copy through a socket.
Usage: shared_memory_client.py CT.nii.gz MASK.nii.gz [HOST:PORT]. pip install "tritonclient[http]" nibabel"""

import json
import sys

import nibabel
import numpy as np
import tritonclient.http as triton
from tritonclient.utils import shared_memory as shm, triton_to_np_dtype

scan = nibabel.as_closest_canonical(nibabel.load(sys.argv[1]))  # the model's volume is in RAS
shape, voxels = [1, *scan.shape], int(np.prod(scan.shape))

with triton.InferenceServerClient(sys.argv[3] if len(sys.argv) > 3 else "localhost:8000", network_timeout=600) as client:
    # One region for the volume, and the mask behind it. Its type is what the model declares.
    declared = {o["name"]: o["datatype"] for o in client.get_model_metadata("spleen_seg_native")["outputs"]}
    dtype = np.dtype(triton_to_np_dtype(declared["MASK_NATIVE"]))
    size = voxels * (4 + dtype.itemsize)
    region = shm.create_shared_memory_region("spleen", "/spleen", size)
    try:
        client.register_system_shared_memory("spleen", "/spleen", size)
        shm.get_contents_as_numpy(region, np.float32, shape)[0] = scan.dataobj
        request = triton.InferInput("INPUT0", shape, "FP32")
        request.set_shared_memory("spleen", voxels * 4)
        wanted = triton.InferRequestedOutput("MASK_NATIVE")
        wanted.set_shared_memory("spleen", voxels * dtype.itemsize, offset=voxels * 4)
        spacing = ",".join(map(str, scan.header.get_zooms()[:3]))
        reply = client.infer("spleen_seg_native", [request], outputs=[wanted], parameters={"spacing": spacing})
        mask = shm.get_contents_as_numpy(region, dtype, scan.shape, offset=voxels * 4).astype(np.uint8)
    finally:
        client.unregister_system_shared_memory("spleen")
        shm.destroy_shared_memory_region(region)

print("volume, mL:", json.loads(reply.get_response()["parameters"]["volume_ml"])[0])  # one entry a volume
nibabel.save(nibabel.Nifti1Image(mask, scan.affine), sys.argv[2])
