#![doc = include_str!("README.md")]

pub mod arguments;

/// One enum with a name for each variant.
macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Every kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $($(#[$doc])* $variant,)*
        }

        impl Kernel {
            /// All of them; each stands at its own number, `kernel as usize`.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in the machine code.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

kernels! {
    /// Bounding box of an FP32 volume.
    ForegroundFp32 = "foreground_fp32",
    /// Bounding box of an INT16 volume.
    ForegroundInt16 = "foreground_int16",
    /// Area resizing with small windows, FP32.
    ResizeAreaFp32 = "resize_area_fp32",
    /// Area resizing with small windows, INT16.
    ResizeAreaInt16 = "resize_area_int16",
    /// Area resizing with large windows, FP32.
    ResizeLargeFp32 = "resize_large_fp32",
    /// Area resizing with large windows, INT16.
    ResizeLargeInt16 = "resize_large_int16",
    /// The sums of parts of the crop, FP32.
    ResizeMeanFp32 = "resize_mean_fp32",
    /// The sums of parts of the crop, INT16.
    ResizeMeanInt16 = "resize_mean_int16",
    /// One voxel of the result from those sums.
    ResizeMeanOfParts = "resize_mean_of_parts",
    /// A copy of the crop, and both nearest modes, FP32.
    ResizeNearestFp32 = "resize_nearest_fp32",
    /// A copy of the crop, and both nearest modes, INT16.
    ResizeNearestInt16 = "resize_nearest_int16",
    /// Trilinear, FP32.
    ResizeTrilinearFp32 = "resize_trilinear_fp32",
    /// Trilinear, INT16.
    ResizeTrilinearInt16 = "resize_trilinear_int16",
    /// Argmax of FP32 scores.
    ArgmaxFp32 = "argmax_fp32",
    /// Argmax of FP16 scores.
    ArgmaxFp16 = "argmax_fp16",
    /// Bits of the selected labels.
    ComponentsPack = "components_pack",
    /// Links each run of voxels to one before it.
    ComponentsLink32 = "components_link_u32",
    /// The same with 64-bit indices.
    ComponentsLink64 = "components_link_u64",
    /// Joins runs that touch.
    ComponentsMerge32 = "components_merge_u32",
    /// The same with 64-bit indices.
    ComponentsMerge64 = "components_merge_u64",
    /// Finds each run's root, counts its voxels, lists the roots.
    ComponentsCount32 = "components_count_u32",
    /// The same with 64-bit indices.
    ComponentsCount64 = "components_count_u64",
    /// One digit of the smallest component that stays.
    ComponentsSelect32 = "components_select_u32",
    /// The same with 64-bit indices.
    ComponentsSelect64 = "components_select_u64",
    /// Sets to 0 what does not stay.
    ComponentsClear32 = "components_clear_u32",
    /// The same with 64-bit indices.
    ComponentsClear64 = "components_clear_u64",
    /// Contour of a mask, from its bits.
    ContourMask = "contour_mask",
    /// Contour of a map of several labels.
    ContourLabels = "contour_labels",
    /// Labels to FP32.
    ConvertFp32 = "convert_fp32",
    /// Labels to FP16.
    ConvertFp16 = "convert_fp16",
    /// Labels to INT32.
    ConvertInt32 = "convert_int32",
    /// Labels to INT64.
    ConvertInt64 = "convert_int64",
    /// Labels on the grid of the input.
    NativeRestore = "native_restore",
    /// How many labels are above 0.
    NativeCountGrid = "native_count_grid",
}
