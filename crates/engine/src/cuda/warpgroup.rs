//! The wgmma instruction of Hopper's tensor cores as source: it names each of its registers, so every number of columns
//! has its own.

/// Helper functions for it.
pub(super) const AROUND: &str = include_str!("kernels/warpgroup.cu");

/// The only compute capability with these tensor cores.
pub(super) const CAPABILITY: (u32, u32) = (9, 0);

/// Where 64 rows of the left operand are, 16 deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Shared,
    /// Four words per thread.
    Registers,
}

/// A function that multiplies 64 rows by `columns` columns, 16 deep, and overwrites or accumulates sums. In a deep
/// right operand each column is contiguous.
pub(super) fn multiply(name: &str, columns: usize, left: Left, right_is_deep: bool) -> String {
    let sums = columns / 2;
    let listed = |count: usize, item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(", ");
    let (parameter, inputs, left_at) = match left {
        Left::Shared => ("uint64 left".to_string(), "\"l\"(left)".to_string(), format!("%{sums}")),
        Left::Registers => (
            "const uint32 (&left)[4]".to_string(),
            listed(4, &|word| format!("\"r\"(left[{word}])")),
            format!("{{{}}}", listed(4, &|word| format!("%{}", sums + word))),
        ),
    };
    let right_at = sums + if left == Left::Shared { 1 } else { 4 };
    // Only an operand in shared memory can be transposed.
    let turned = format!("{}{}", if left == Left::Shared { "0, " } else { "" }, u32::from(!right_is_deep));
    format!(
        "// 64 rows times {columns} columns, 16 deep; into the sums, or added to them.\n\
         __device__ __forceinline__ void {name}(float (&sums)[{sums}], {parameter}, uint64 right, int adds) {{\n    \
         asm volatile(\"{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{adds_at}, 0;\\nwgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 \
         {{{registers}}}, {left_at}, %{right_at}, adds, 1, 1, {turned};\\n}}\"\n        : {outputs}\n        : {inputs}, \"l\"(right), \"r\"(adds));\n}}\n",
        adds_at = right_at + 1,
        registers = listed(sums, &|sum| format!("%{sum}")),
        outputs = listed(sums, &|sum| format!("\"+f\"(sums[{sum}])")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operand_is_given_and_named_once() {
        for (columns, left, words) in [(16, Left::Registers, 4), (208, Left::Registers, 4), (128, Left::Shared, 1)] {
            let text = multiply("multiply", columns, left, true);
            let (instruction, operands) = text.split_once("\\n}\"").expect("the instruction ends");
            let mut named: Vec<usize> = instruction
                .split('%')
                .skip(1)
                .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap())
                .collect();
            named.sort_unstable();
            // Half a sum per column, the left operand, the right one, and whether to accumulate.
            assert_eq!(named, (0..columns / 2 + words + 2).collect::<Vec<_>>(), "{text}");
            assert_eq!(operands.matches('"').count(), 2 * named.len(), "{text}");
        }
    }

    #[test]
    fn only_a_left_operand_in_memory_can_be_turned() {
        let turned = |left: Left, right_is_deep: bool| {
            let text = multiply("multiply", 64, left, right_is_deep);
            text.split_once("adds, 1, 1, ").unwrap().1.split_once(';').unwrap().0.to_string()
        };
        assert_eq!([turned(Left::Shared, true), turned(Left::Shared, false)], ["0, 0", "0, 1"]);
        assert_eq!([turned(Left::Registers, true), turned(Left::Registers, false)], ["0", "1"]);
    }
}
