//! GPUs that know each other: what they send, and what they add up.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{Functions, Handle, Id, Kind, SUM, functions};
use crate::cuda::device::Device;
use crate::cuda::memory::DeviceBuffer;
use crate::cuda::stream::{Event, Stream, while_nothing_is_recorded};
use crate::error::{Error, Result};

/// How long a communicator may take to begin, and its first sum.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what takes long.
const GLANCE: Duration = Duration::from_millis(5);
/// How often one looks without a pause, and the longest pause after that.
const EAGER_LOOKS: u32 = 200;
const LONGEST_PAUSE: Duration = Duration::from_micros(200);

/// Looks after other things while something is waited for; its error ends the waiting.
pub(in crate::cuda) type Idle<'i> = &'i mut dyn FnMut() -> Result<()>;

/// This GPU among others. One thread uses it at a time.
pub(in crate::cuda) struct Communicator {
    functions: &'static Functions,
    handle: Handle,
    size: usize,
    device: Arc<Device>,
}

// SAFETY: a communicator may be used by any thread with the context, one at a time.
unsafe impl Send for Communicator {}

/// A communicator on its way from the thread that has begun it.
struct Begun(Handle);

// SAFETY: as above.
unsafe impl Send for Begun {}

impl Communicator {
    /// What all ranks need to begin: rank 0 asks for it.
    pub fn new_id() -> Result<Id> {
        let functions = functions().map_err(Error::Machine)?;
        let mut id = Id([0; Id::BYTES]);
        // SAFETY: it writes the id.
        let code = unsafe { (functions.get_unique_id)(&mut id) };
        functions.check(code, "naming a communicator")?;
        Ok(id)
    }

    /// Begins: all ranks call this, each with a GPU of its own. It waits for all of them, and adds up a one of each to see that it works.
    pub fn begin(device: &Arc<Device>, id: Id, rank: usize, size: usize, idle: Idle) -> Result<Communicator> {
        let functions = functions().map_err(Error::Machine)?;
        let number = |number: usize| {
            c_int::try_from(number).map_err(|_| Error::Machine(format!("{number} are too many ranks for NCCL")))
        };
        let (rank, count) = (number(rank)?, number(size)?);
        let (give, take) = sync_channel(1);
        let own = Arc::clone(device);
        // In a thread of its own: it hangs where another rank does not come, and nothing ends it.
        let work = move || {
            let begun = own.bind().and_then(|()| {
                let mut handle = std::ptr::null_mut();
                // SAFETY: the calling thread's context is that of the GPU; the handle is written.
                let code = unsafe { (functions.init_rank)(&mut handle, count, id, rank) };
                functions.check(code, "bringing the GPUs of all ranks together").map(|()| Begun(handle))
            });
            let _ = give.send(begun);
        };
        let started = thread::Builder::new().name("nccl".to_string()).spawn(work);
        started.map_err(|error| Error::Machine(format!("the system refuses a thread: {error}")))?;
        let end = Instant::now() + PATIENCE;
        let Begun(handle) = loop {
            match take.recv_timeout(GLANCE) {
                Ok(begun) => break begun?,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => idle()?,
                Err(_) => return Err(too_long("did not find each other")),
            }
        };
        let communicator = Communicator { functions, handle, size, device: Arc::clone(device) };
        communicator.try_out(idle)?;
        Ok(communicator)
    }

    /// Adds up a one of each rank. The connections that this makes are not made while a step is recorded, then.
    fn try_out(&self, idle: Idle) -> Result<()> {
        self.device.bind()?;
        let stream = Stream::new()?;
        let event = Event::new()?;
        let mut one = DeviceBuffer::new(&self.device, size_of::<f32>())?;
        one.write(0, &[1.0f32])?;
        // SAFETY: the buffer has one number, and stays until the event.
        unsafe { self.all_reduce(one.start(), one.start(), 1, Kind::F32, &stream)? };
        event.record(&stream)?;
        let end = Instant::now() + PATIENCE;
        let waited = self.wait_for(&event, &mut || {
            idle()?;
            if Instant::now() > end { Err(too_long("could not add up their numbers")) } else { Ok(()) }
        });
        if let Err(error) = waited {
            // What still runs would write there, or keep these from being given back.
            std::mem::forget((one, stream, event));
            return Err(error);
        }
        let mut sum = [0.0f32];
        one.read(0, &mut sum)?;
        match sum[0] == self.size as f32 {
            true => Ok(()),
            false => {
                Err(Error::Machine(format!("NCCL added up a one of each of {} ranks, and got {}", self.size, sum[0])))
            }
        }
    }

    /// Waits for what an event stands for, and sees whether something went wrong meanwhile.
    pub fn wait_for(&self, event: &Event, idle: Idle) -> Result<()> {
        let mut looks = 0u32;
        while !event.is_reached() {
            looks = looks.saturating_add(1);
            if looks > EAGER_LOOKS {
                self.check()?;
                idle()?;
                thread::sleep(Duration::from_micros(u64::from(looks - EAGER_LOOKS)).min(LONGEST_PAUSE));
            } else {
                thread::yield_now();
            }
        }
        // An event of a GPU that failed counts as not reached, or fails here.
        event.wait()
    }

    /// Whether something went wrong since it was begun, here or on another rank.
    pub fn check(&self) -> Result<()> {
        let mut state = 0;
        // SAFETY: the communicator is alive; it writes one number.
        let code = unsafe { (self.functions.async_error)(self.handle, &mut state) };
        self.functions.check(code, "asking NCCL")?;
        self.functions.check(state, "sending between GPUs")
    }

    /// Adds up numbers of all ranks, place by place; the sums go to `to` on all of them, which may be `from`.
    ///
    /// # Safety
    /// Both must be addresses of so many numbers on the device, which nothing else writes until the stream has done it.
    pub unsafe fn all_reduce(&self, from: u64, to: u64, count: usize, kind: Kind, stream: &Stream) -> Result<()> {
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: guaranteed by the caller.
        let code = unsafe {
            (self.functions.all_reduce)(from, to, count, kind as c_int, SUM, self.handle, stream.handle().cast())
        };
        self.functions.check(code, "adding up gradients")
    }

    /// Sends bytes to a rank.
    ///
    /// # Safety
    /// As of [`Communicator::all_reduce`].
    pub unsafe fn send(&self, from: u64, bytes: usize, to: usize, stream: &Stream) -> Result<()> {
        let (from, kind) = (from as *const c_void, Kind::U8 as c_int);
        // SAFETY: guaranteed by the caller.
        let code =
            unsafe { (self.functions.send)(from, bytes, kind, to as c_int, self.handle, stream.handle().cast()) };
        self.functions.check(code, "sending bytes")
    }

    /// Receives bytes from a rank.
    ///
    /// # Safety
    /// As of [`Communicator::all_reduce`].
    pub unsafe fn receive(&self, to: u64, bytes: usize, from: usize, stream: &Stream) -> Result<()> {
        let (to, kind) = (to as *mut c_void, Kind::U8 as c_int);
        // SAFETY: guaranteed by the caller.
        let code =
            unsafe { (self.functions.receive)(to, bytes, kind, from as c_int, self.handle, stream.handle().cast()) };
        self.functions.check(code, "receiving bytes")
    }

    /// Asks for several messages at once, none of which waits for another.
    pub fn group(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: what is begun here is ended below, by the same thread.
        self.functions.check(unsafe { (self.functions.group_start)() }, "beginning messages")?;
        let asked = work();
        // SAFETY: as above.
        let ended = self.functions.check(unsafe { (self.functions.group_end)() }, "sending messages");
        asked.and(ended)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // To end one of several ranks is itself something that all ranks do together: one that has failed would wait for the others here.
        // The process ends with it.
        if self.size == 1 && self.device.bind().is_ok() {
            let _together = while_nothing_is_recorded();
            // SAFETY: begun in `begin`, ended once; what was recorded with it is gone, as whoever records keeps it for longer.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

fn too_long(what: &str) -> Error {
    Error::Machine(format!(
        "the GPUs of all ranks {what} within {} seconds; NCCL_DEBUG=INFO says why",
        PATIENCE.as_secs()
    ))
}
