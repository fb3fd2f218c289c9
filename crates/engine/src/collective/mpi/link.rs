//! This process among the others, over MPI.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use libloading::Library;

use super::abi::{Functions, Handle, text_of};
use super::beats::Beats;
use crate::collective::{Collective, launch};
use crate::error::{Error, Result};

/// Calls come from the thread that began MPI.
const FUNNELED: c_int = 1;
/// The most bytes of a message: counts are C's `int`.
const MOST_BYTES: usize = 1 << 30;
/// Tags of messages.
const DATA: c_int = 1;
pub(super) const BEAT: c_int = 2;
/// How often one looks for messages without a pause, and the longest pause after that. The core may have better things to do.
const EAGER_LOOKS: u32 = 200;
const LONGEST_PAUSE: Duration = Duration::from_micros(200);

/// MPI, begun.
pub(super) struct Mpi<H> {
    pub functions: Functions<H>,
    pub world: H,
    pub byte: H,
    pub no_request: H,
    pub rank: usize,
    pub size: usize,
    version: String,
    host: String,
    beats: Option<Beats<H>>,
}

impl<H: Handle> Mpi<H> {
    /// Begins MPI in this thread.
    pub fn begin(library: Library, version: String) -> Result<Mpi<H>> {
        let functions = Functions::<H>::of(&library)?;
        let ([world, byte], no_request) = (H::names(&library)?, H::no_request(&library)?);
        // Never unloaded: such libraries do not support it.
        std::mem::forget(library);
        let mut provided = 0;
        // SAFETY: begun once, by this thread; the arguments may be absent.
        let code = unsafe { (functions.init_thread)(null_mut(), null_mut(), FUNNELED, &mut provided) };
        check(code, "MPI_Init_thread")?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI has begun; each writes one number.
        let codes = unsafe { [(functions.comm_rank)(world, &mut rank), (functions.comm_size)(world, &mut size)] };
        codes.into_iter().try_for_each(|code| check(code, "MPI_Comm_rank"))?;
        let number = |count: c_int| usize::try_from(count).unwrap_or(0);
        // SAFETY: the buffer is as long as any library asks for.
        let host = text_of(|bytes, length| unsafe { (functions.processor_name)(bytes, length) });
        let mut mpi = Mpi {
            functions,
            world,
            byte,
            no_request,
            rank: number(rank),
            size: number(size),
            version,
            host: host.unwrap_or_else(launch::host_name),
            beats: None,
        };
        mpi.beats = Some(Beats::begin(&mpi)?);
        Ok(mpi)
    }

    /// Starts to send. The bytes must stay until the request is complete.
    pub fn start_send(&self, to: usize, bytes: &[u8], tag: c_int) -> Result<H> {
        let mut request = self.no_request;
        let (start, count) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as c_int);
        // SAFETY: the bytes are there until the request is complete, as whoever calls this sees to.
        let code =
            unsafe { (self.functions.send)(start, count, self.byte, to as c_int, tag, self.world, &mut request) };
        check(code, "MPI_Isend")?;
        Ok(request)
    }

    /// Starts to receive. The bytes must stay, and nobody may look at them, until the request is complete.
    pub fn start_receive(&self, from: usize, bytes: &mut [u8], tag: c_int) -> Result<H> {
        let mut request = self.no_request;
        let (start, count) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len() as c_int);
        // SAFETY: as above.
        let code =
            unsafe { (self.functions.receive)(start, count, self.byte, from as c_int, tag, self.world, &mut request) };
        check(code, "MPI_Irecv")?;
        Ok(request)
    }

    /// Whether a request is complete.
    pub fn is_complete(&self, request: &mut H) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the request is one of this library's; no status is wanted.
        let code = unsafe { (self.functions.test)(request, &mut done, H::NO_STATUS as *mut c_void) };
        check(code, "MPI_Test")?;
        Ok(done != 0)
    }

    fn are_complete(&self, requests: &mut [H]) -> Result<bool> {
        let mut done = 0;
        let count = requests.len() as c_int;
        // SAFETY: as above.
        let code =
            unsafe { (self.functions.test_all)(count, requests.as_mut_ptr(), &mut done, H::NO_STATUS as *mut c_void) };
        check(code, "MPI_Testall")?;
        Ok(done != 0)
    }

    /// Waits for requests, and for the others' signs of life meanwhile.
    fn wait(&mut self, requests: &mut [H], idle: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut looks = 0;
        while !self.are_complete(requests)? {
            looks += 1;
            if looks > EAGER_LOOKS {
                self.watch()?;
                idle()?;
                std::thread::sleep(Duration::from_micros(u64::from(looks - EAGER_LOOKS)).min(LONGEST_PAUSE));
            } else {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

impl<H: Handle> Collective for Mpi<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> String {
        self.version.clone()
    }

    fn host(&self) -> String {
        self.host.clone()
    }

    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut requests = Vec::new();
        // Messages from one rank to another arrive in the order in which they were sent.
        for (from, bytes) in receives.iter_mut() {
            for part in bytes.chunks_mut(MOST_BYTES) {
                requests.push(self.start_receive(*from, part, DATA)?);
            }
        }
        for (to, bytes) in sends {
            for part in bytes.chunks(MOST_BYTES) {
                requests.push(self.start_send(*to, part, DATA)?);
            }
        }
        // After an error the library may still write there: whoever gets it ends the process.
        self.wait(&mut requests, idle)
    }

    fn watch(&mut self) -> Result<()> {
        let Some(mut beats) = self.beats.take() else { return Ok(()) };
        let looked = beats.look(self);
        self.beats = Some(beats);
        looked
    }

    fn abort(&mut self, code: i32) {
        // SAFETY: MPI has begun; this ends all processes.
        unsafe { (self.functions.abort)(self.world, code) };
    }

    fn say_goodbye(&mut self) -> Result<()> {
        self.beats.take().map_or(Ok(()), |mut beats| beats.end(self))
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: no request is open.
        check(unsafe { (self.functions.finalize)() }, "MPI_Finalize")
    }
}

/// Libraries end the process where something fails, unless they are asked not to; some give a number all the same.
pub(super) fn check(code: c_int, function: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::Machine(format!("{function} failed with code {code}"))),
    }
}
