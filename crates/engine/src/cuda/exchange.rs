//! What the host gives a run and gets from it: inputs, the run's numbers, results, faults.
//!
//! Inputs are filled in memory of the host, copied to a landing place on the device by a stream of their own while a run may go on, and
//! from there into the arena when the next run begins. Results come back into memory of the host at a run's end.

use std::sync::Arc;

use cudarc::driver::result as driver;

use super::device::{Device, failed};
use super::launch::{Address, Buffer};
use super::memory::{DeviceBuffer, HostBuffer};
use super::stream::{Event, Stream};
use crate::error::Result;
use crate::graph::Value;
use crate::ops::Op;
use crate::plan::{Location, Plan};
use crate::random::Run;

/// Bytes of the buffer that a run is given: `struct Run`, and behind it where kernels note faults.
const RUN_BYTES: usize = 32;
/// Where the fault is noted.
const FAULT: usize = 16;
const NO_FAULT: i32 = i32::MAX;
/// Inputs of up to so many bytes go straight into the arena.
const SMALL: usize = 16 << 10;
/// Parts of the memory of the host begin at multiples of this.
const ALIGNMENT: usize = 256;

/// An input, or a result.
struct Part {
    value: Value,
    /// Where it lies on the host, and on the landing place if it is an input.
    byte: usize,
    bytes: usize,
    /// Where it lies on the device.
    place: Address,
    /// Filled, but not sent; sent, but not in the arena.
    filled: bool,
    landed: bool,
}

pub(super) struct Exchange {
    inputs: Vec<Part>,
    results: Vec<Part>,
    input_memory: HostBuffer,
    result_memory: HostBuffer,
    run_memory: HostBuffer,
    landing: DeviceBuffer,
    run: DeviceBuffer,
    stream: Stream,
    /// The inputs were copied from the host.
    sent: Event,
    /// They were copied from the landing place, which is free again.
    taken: Event,
}

fn parts(plan: &Plan, values: impl Iterator<Item = Value>) -> (Vec<Part>, usize) {
    let (mut parts, mut byte) = (Vec::new(), 0);
    for value in values {
        let place = match plan.location(value) {
            Location::Arena(byte) => Address { buffer: Buffer::Arena, byte },
            Location::Constants(float) => Address { buffer: Buffer::Constants, byte: 4 * float },
            _ => continue,
        };
        let bytes = plan.type_of(value).bytes();
        parts.push(Part { value, byte, bytes, place, filled: false, landed: false });
        byte = (byte + bytes).next_multiple_of(ALIGNMENT);
    }
    (parts, byte)
}

fn input_values(plan: &Plan) -> impl Iterator<Item = Value> {
    let nodes = plan.graph().nodes().iter().enumerate();
    nodes.filter(|(_, node)| matches!(node.op, Op::Input(_))).map(|(index, _)| Value::new(index, 0))
}

impl Exchange {
    pub fn new(device: &Arc<Device>, plan: &Plan) -> Result<Exchange> {
        let (mut inputs, input_bytes) = parts(plan, input_values(plan));
        let fetched = plan.outputs().iter().copied().filter(|&value| !plan.is_left_on_device(value));
        let (results, result_bytes) = parts(plan, fetched);
        // What nobody fills is zero, as on the CPU.
        inputs.iter_mut().for_each(|input| input.filled = true);
        Ok(Exchange {
            input_memory: HostBuffer::zeroed(device, input_bytes)?,
            result_memory: HostBuffer::zeroed(device, result_bytes)?,
            run_memory: HostBuffer::zeroed(device, 2 * RUN_BYTES)?,
            landing: DeviceBuffer::new(device, input_bytes)?,
            run: DeviceBuffer::zeroed(device, RUN_BYTES)?,
            stream: Stream::new()?,
            sent: Event::new()?,
            taken: Event::new()?,
            inputs,
            results,
        })
    }

    /// Bytes on the device.
    pub fn device_bytes(&self) -> usize {
        self.landing.bytes() + RUN_BYTES
    }

    /// As [`Exchange::device_bytes`], before there is one.
    pub fn device_bytes_needed(plan: &Plan) -> usize {
        parts(plan, input_values(plan)).1 + RUN_BYTES
    }

    pub fn run_start(&self) -> u64 {
        self.run.start()
    }

    /// An input's memory, to fill: once what was there before has been copied.
    pub fn input(&mut self, value: Value) -> Result<&mut [u8]> {
        self.sent.wait()?;
        let input = self.inputs.iter_mut().find(|input| input.value == value).expect("an input of the plan");
        input.filled = true;
        let range = input.byte..input.byte + input.bytes;
        Ok(&mut self.input_memory.bytes_mut()[range])
    }

    /// Starts to copy what was filled to the landing place, as soon as that is free.
    pub fn send_inputs(&mut self) -> Result<()> {
        if !self.inputs.iter().any(|input| input.filled) {
            return Ok(());
        }
        self.stream.wait_for(&self.taken)?;
        for input in self.inputs.iter_mut().filter(|input| input.filled) {
            let to = self.landing.start() + input.byte as u64;
            // SAFETY: `input` waits for `sent` before it lends the memory, and the landing place is as large.
            unsafe { self.input_memory.send(input.byte, input.bytes, to, &self.stream)? };
            (input.filled, input.landed) = (false, true);
        }
        self.sent.record(&self.stream)
    }

    /// Waits until inputs that were sent are there.
    pub fn finish(&self) -> Result<()> {
        self.sent.wait()
    }

    /// Has a run's stream take what was sent, or was filled and not sent, into the arena.
    pub fn deliver(&mut self, stream: &Stream, arena: &DeviceBuffer) -> Result<()> {
        let waiting = || self.inputs.iter().filter(|input| input.filled);
        let is_small = waiting().map(|input| input.bytes).sum::<usize>() <= SMALL && waiting().next().is_some();
        if is_small && !self.inputs.iter().any(|input| input.landed) {
            return self.deliver_directly(stream, arena);
        }
        self.send_inputs()?;
        if !self.inputs.iter().any(|input| input.landed) {
            return Ok(());
        }
        stream.wait_for(&self.sent)?;
        for input in self.inputs.iter_mut().filter(|input| input.landed) {
            input.landed = false;
            let (to, from) = (arena.start() + input.place.byte as u64, self.landing.start() + input.byte as u64);
            // SAFETY: the input has so many bytes in both places.
            unsafe { driver::memcpy_dtod_async(to, from, input.bytes, stream.handle()) }
                .map_err(|error| failed("copying inputs", error))?;
        }
        self.taken.record(stream)
    }

    /// Copies what was filled straight into the arena. Of little, as of a step of decoding, the way over the landing place takes
    /// longer than the copies.
    fn deliver_directly(&mut self, stream: &Stream, arena: &DeviceBuffer) -> Result<()> {
        for input in self.inputs.iter_mut().filter(|input| input.filled) {
            input.filled = false;
            let to = arena.start() + input.place.byte as u64;
            // SAFETY: `input` waits for `sent` before it lends the memory, and the input has so many bytes in the arena.
            unsafe { self.input_memory.send(input.byte, input.bytes, to, stream)? };
        }
        self.sent.record(stream)
    }

    /// The numbers of the next run.
    pub fn set_run(&mut self, run: Run) {
        let memory = self.run_memory.bytes_mut();
        memory[..8].copy_from_slice(&run.seed.to_le_bytes());
        memory[8..16].copy_from_slice(&run.step.to_le_bytes());
        memory[FAULT..FAULT + 4].copy_from_slice(&NO_FAULT.to_le_bytes());
    }

    /// Has them copied to the device.
    pub fn send_run(&self, stream: &Stream) -> Result<()> {
        // SAFETY: they are set only between runs.
        unsafe { self.run_memory.send(0, RUN_BYTES, self.run.start(), stream) }
    }

    /// Has results and faults copied to the host.
    pub fn fetch_results(&self, stream: &Stream, address: impl Fn(Address) -> u64) -> Result<()> {
        // SAFETY: they are read only after the run.
        unsafe {
            for result in &self.results {
                self.result_memory.fetch(result.byte, result.bytes, address(result.place), stream)?;
            }
            self.run_memory.fetch(RUN_BYTES, RUN_BYTES, self.run.start(), stream)
        }
    }

    /// The position of a whole number that was out of range in the run that has ended.
    pub fn fault(&self) -> Option<i32> {
        let bytes = &self.run_memory.bytes()[RUN_BYTES + FAULT..][..4];
        let position = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (position != NO_FAULT).then_some(position)
    }

    /// A result of the run that has ended.
    pub fn result(&self, value: Value) -> Option<&[u8]> {
        let result = self.results.iter().find(|result| result.value == value)?;
        Some(&self.result_memory.bytes()[result.byte..result.byte + result.bytes])
    }
}
