//! NIfTI scans, and masks on their grid.

use std::path::{Path, PathBuf};

use ndarray::{ArrayD, ArrayView, Axis, IxDyn};
use nifti::writer::WriterOptions;
use nifti::{IntoNdArray, NiftiHeader, NiftiObject, ReaderOptions};
use triton_backend_api::{Error, HostMemory, Result};
use triton_spleenseg::cpu::Labels;
use triton_spleenseg::volume::Shape3;

use crate::axes::Axes;

/// One 3-D volume in Hounsfield units, in the file's own order.
pub struct Scan {
    path: PathBuf,
    header: NiftiHeader,
    voxels: ArrayD<f64>,
    affine: [[f64; 4]; 3],
    axes: Axes,
}

impl Scan {
    /// Reads a file; its scaling is applied.
    pub fn read(path: &Path) -> Result<Self> {
        let place = |text: String| Error::invalid_arg(format!("{}: {text}", path.display()));
        let file = ReaderOptions::new()
            .read_file(path)
            .map_err(|error| place(format!("cannot be read as NIfTI: {error}")))?;
        let header = file.header().clone();
        let mut voxels = file
            .into_volume()
            .into_ndarray::<f64>()
            .map_err(|error| place(format!("its voxels cannot be read: {error}")))?;
        // Further axes of one entry each are still one volume.
        let dims = voxels.shape().to_vec();
        let (space, rest) = dims.split_at(dims.len().min(3));
        if space.len() != 3 || rest.iter().any(|n| *n != 1) {
            return Err(place(format!("found the dimensions {dims:?}; accepted is one 3-D volume")));
        }
        while voxels.ndim() > 3 {
            let last = Axis(voxels.ndim() - 1);
            voxels = voxels.remove_axis(last);
        }
        let affine = affine(&header);
        let axes = Axes::of_affine(&affine).filter(|_| determinant(&affine).abs() > 1e-9);
        let axes = axes.ok_or_else(|| place(format!("its affine does not describe a volume: {affine:?}")))?;
        Ok(Self { path: path.to_owned(), header, voxels, affine, axes })
    }

    /// The voxels as the network's order has them: FP32 in C order.
    pub fn voxels(&self, order: Axes) -> Result<(HostMemory, Shape3)> {
        let view = self.axes.view_as(self.voxels.view(), order);
        let mut dims = [0; 3];
        for (dim, n) in dims.iter_mut().zip(view.shape()) {
            *dim = *n as i64;
        }
        let shape = Shape3::new(dims).map_err(|error| error.context(self.path.display().to_string()))?;
        let mut memory = HostMemory::zeroed(shape.count() * size_of::<f32>())?;
        for (out, voxel) in memory.elements_mut::<f32>().iter_mut().zip(view.iter()) {
            *out = *voxel as f32;
        }
        Ok((memory, shape))
    }

    /// Writes labels of that order on the file's grid, with its header.
    pub fn write(&self, labels: &Labels, order: Axes, path: &Path) -> Result<()> {
        let failed = |text: String| Error::internal(format!("{}: {text}", path.display()));
        let array = ArrayView::from_shape(IxDyn(&labels.shape().dims()), labels.data())
            .map_err(|error| failed(error.to_string()))?;
        let mask = order.view_as(array, self.axes);
        let mut header = self.header.clone();
        (header.cal_min, header.cal_max) = (0.0, 1.0);
        header.descrip = format!("spleenseg-cli {}", env!("CARGO_PKG_VERSION")).into_bytes();
        header.descrip.resize(80, 0);
        // Under another name first: what has the right name is whole. The writer takes the format from the name.
        let compressed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        let part = format!(".spleenseg-{}.{}", std::process::id(), if compressed { "nii.gz" } else { "nii" });
        let part = path.with_file_name(part);
        let written = WriterOptions::new(&part)
            .reference_header(&header)
            .compress(compressed)
            .write_nifti(&mask)
            .map_err(|error| error.to_string())
            .and_then(|()| std::fs::rename(&part, path).map_err(|error| error.to_string()));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.map_err(|error| failed(format!("cannot be written: {error}")))
    }

    /// The volume of this many voxels.
    pub fn millilitres(&self, voxels: usize) -> f64 {
        voxels as f64 * determinant(&self.affine).abs() / 1000.0
    }
}

/// Voxels to millimetres, as NIfTI readers choose it: sform, else qform, else the voxels' sizes.
fn affine(header: &NiftiHeader) -> [[f64; 4]; 3] {
    if header.sform_code > 0 {
        return [header.srow_x, header.srow_y, header.srow_z].map(|row| row.map(f64::from));
    }
    let size = |axis: usize| f64::from(header.pixdim[axis + 1]);
    if header.qform_code <= 0 {
        let half = |axis: usize| (f64::from(header.dim[axis + 1]) - 1.0) / 2.0;
        let mut found = [[0.0; 4]; 3];
        for (axis, row) in found.iter_mut().enumerate() {
            row[axis] = if axis == 0 { -size(axis) } else { size(axis) };
            row[3] = -half(axis) * row[axis];
        }
        return found;
    }
    let [b, c, d] = [header.quatern_b, header.quatern_c, header.quatern_d].map(f64::from);
    let a = (1.0 - (b * b + c * c + d * d)).max(0.0).sqrt();
    let rotation = [
        [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
        [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
        [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ];
    let side = if header.pixdim[0] < 0.0 { -1.0 } else { 1.0 };
    let scale = [size(0), size(1), side * size(2)];
    let offset = [header.quatern_x, header.quatern_y, header.quatern_z].map(f64::from);
    let mut found = [[0.0; 4]; 3];
    for (row, (turned, offset)) in found.iter_mut().zip(rotation.iter().zip(offset)) {
        *row = [turned[0] * scale[0], turned[1] * scale[1], turned[2] * scale[2], offset];
    }
    found
}

fn determinant(m: &[[f64; 4]; 3]) -> f64 {
    let minor = |a: usize, b: usize| m[1][a] * m[2][b] - m[1][b] * m[2][a];
    m[0][0] * minor(1, 2) - m[0][1] * minor(0, 2) + m[0][2] * minor(0, 1)
}
