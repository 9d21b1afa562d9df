//! Runs a program under ptrace(2), counts its system calls, and lets one of them fail. It traces
//! all threads and children. Unlike a preloaded library, ptrace also sees system calls that do not
//! go through libc.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{mem, thread};

use libc::{c_int, c_long, pid_t};

use super::syscalls::{Fault, call_of};

/// The call that fails, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injection {
    pub(crate) number: c_long,
    /// Counted from 0, over all threads, from the start of `main`.
    pub(crate) nth: u64,
    pub(crate) fault: Fault,
}

/// The result of a traced program.
pub(crate) struct Traced {
    pub(crate) status: ExitStatus,
    /// How often each system call was made after the start of `main`.
    pub(crate) calls: HashMap<c_long, u64>,
    /// Whether the call that was to fail was reached.
    pub(crate) injected: bool,
    /// The program did not end by itself.
    pub(crate) hung: bool,
    pub(crate) stderr: String,
    /// Positions and lengths of writes by pwrite(2) since the last sync, which a power cut can
    /// undo.
    pub(crate) unsynced: Vec<(u64, u64)>,
    pub(crate) syncs: u64,
}

/// Runs `command` until it ends, at most for `timeout`.
///
/// # Errors
/// When it cannot be started or traced.
pub(crate) fn trace(
    mut command: Command,
    inject: Option<Injection>,
    timeout: Duration,
) -> io::Result<Traced> {
    let mut stderr = tempfile::tempfile()?;
    command.stderr(stderr.try_clone()?).process_group(0);
    // SAFETY: `trace_me` only makes a system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(trace_me) };
    #[allow(clippy::zombie_processes, reason = "the tracer waits for it, and for all its threads")]
    let main = command.spawn()?.id().cast_signed();
    let hung = AtomicBool::new(false);
    let (done, wait) = channel::<()>();
    let traced = thread::scope(|scope| {
        let hung = &hung;
        scope.spawn(move || {
            if wait.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                hung.store(true, Ordering::Relaxed);
                // Descendants in other process groups end with their pipes.
                kill_group(main);
            }
        });
        let traced = Tracer::new(main, inject).run();
        drop(done);
        traced
    });
    let (status, tracer) = traced?;
    Ok(Traced {
        status,
        calls: tracer.calls,
        injected: tracer.injected,
        hung: hung.into_inner(),
        stderr: read_back(&mut stderr)?,
        unsynced: tracer.unsynced,
        syncs: tracer.syncs,
    })
}

fn read_back(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Tracer {
    main: pid_t,
    inject: Option<Injection>,
    injected: bool,
    calls: HashMap<c_long, u64>,
    known: HashSet<pid_t>,
    /// Threads whose current call gets another result when it ends.
    altered: HashMap<pid_t, Altered>,
    unsynced: Vec<(u64, u64)>,
    syncs: u64,
    started: bool,
    status: Option<ExitStatus>,
}

enum Altered {
    /// The kernel did not execute the call.
    Failed(i32),
    /// Its length was reduced: the register gets its old value back, as the caller may use it
    /// again.
    Shortened { argument: usize, value: u64 },
}

impl Tracer {
    fn new(main: pid_t, inject: Option<Injection>) -> Self {
        Self {
            main,
            inject,
            injected: false,
            calls: HashMap::new(),
            known: HashSet::new(),
            altered: HashMap::new(),
            unsynced: Vec::new(),
            syncs: 0,
            started: false,
            status: None,
        }
    }

    fn run(mut self) -> io::Result<(ExitStatus, Self)> {
        loop {
            let mut status = 0;
            // Children of other threads of this process are not waited for here.
            let flags = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: `status` is valid during the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            if pid < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => break,
                    _ => return Err(io::Error::last_os_error()),
                }
            }
            self.stopped(pid, status)?;
        }
        let status = self.status.ok_or_else(|| io::Error::other("the program never ended"))?;
        Ok((status, self))
    }

    fn stopped(&mut self, pid: pid_t, status: c_int) -> io::Result<()> {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if pid == self.main {
                self.status = Some(ExitStatus::from_raw(status));
            }
            return Ok(());
        }
        let signal = libc::WSTOPSIG(status);
        let new = self.known.insert(pid);
        let deliver = if signal == libc::SIGTRAP | 0x80 {
            ignore_no_such_process(self.system_call(pid))?;
            0
        } else if pid == self.main && new {
            // Stopped by its exec.
            let options = libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_EXITKILL;
            request(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
            0
        } else if status >> 16 != 0 || (new && signal == libc::SIGSTOP) {
            // An event of ptrace, or a new thread's first stop.
            0
        } else {
            signal
        };
        ignore_no_such_process(request(libc::PTRACE_SYSCALL, pid, 0, deliver as usize))
    }

    /// A thread enters a system call or returns from it.
    fn system_call(&mut self, pid: pid_t) -> io::Result<()> {
        // struct ptrace_syscall_info: op, arch, ip, sp; then of an entry the number and six
        // arguments.
        let mut info = [0u64; 11];
        let size = mem::size_of_val(&info);
        request(libc::PTRACE_GET_SYSCALL_INFO, pid, size, info.as_mut_ptr() as usize)?;
        match info[0] & 0xFF {
            1 => {
                let arguments = [info[4], info[5], info[6], info[7]];
                self.enters(pid, info[3].cast_signed(), arguments)
            }
            2 => self.leaves(pid),
            _ => Ok(()),
        }
    }

    fn enters(&mut self, pid: pid_t, number: c_long, arguments: [u64; 4]) -> io::Result<()> {
        // Rust sets the alternate stack up just before `main`; the calls of the loader before are
        // not counted.
        self.started |= number == libc::SYS_sigaltstack;
        if !self.started {
            return Ok(());
        }
        let count = self.calls.entry(number).or_default();
        let nth = *count;
        *count += 1;
        let Some(inject) =
            self.inject.filter(|inject| inject.number == number && inject.nth == nth)
        else {
            match number {
                libc::SYS_pwrite64 => self.unsynced.push((arguments[3], arguments[2])),
                libc::SYS_fsync | libc::SYS_fdatasync => {
                    self.unsynced.clear();
                    self.syncs += 1;
                }
                _ => {}
            }
            return Ok(());
        };
        self.injected = true;
        match inject.fault {
            Fault::Kill => kill_group(self.main),
            Fault::Error(errno) => {
                let mut registers = registers(pid)?;
                // No system call has this number, so the kernel executes none.
                registers.orig_rax = u64::MAX;
                set_registers(pid, &registers)?;
                self.altered.insert(pid, Altered::Failed(errno));
            }
            Fault::Short => {
                let Some(argument) = call_of(number).and_then(|call| call.length) else {
                    return Ok(());
                };
                let mut registers = registers(pid)?;
                let register = self::argument(&mut registers, argument);
                let value = *register;
                if value > 1 {
                    *register = value / 2;
                    set_registers(pid, &registers)?;
                    self.altered.insert(pid, Altered::Shortened { argument, value });
                }
            }
        }
        Ok(())
    }

    fn leaves(&mut self, pid: pid_t) -> io::Result<()> {
        let Some(altered) = self.altered.remove(&pid) else { return Ok(()) };
        let mut registers = registers(pid)?;
        match altered {
            Altered::Failed(errno) => registers.rax = i64::from(-errno).cast_unsigned(),
            Altered::Shortened { argument, value } => {
                *self::argument(&mut registers, argument) = value
            }
        }
        set_registers(pid, &registers)
    }
}

/// The register of argument number `n`, counted from 0, of x86-64's system calls.
fn argument(registers: &mut libc::user_regs_struct, n: usize) -> &mut u64 {
    match n {
        0 => &mut registers.rdi,
        1 => &mut registers.rsi,
        2 => &mut registers.rdx,
        3 => &mut registers.r10,
        4 => &mut registers.r8,
        _ => &mut registers.r9,
    }
}

fn registers(pid: pid_t) -> io::Result<libc::user_regs_struct> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut registers: libc::user_regs_struct = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETREGS, pid, 0, (&raw mut registers) as usize)?;
    Ok(registers)
}

fn set_registers(pid: pid_t, registers: &libc::user_regs_struct) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, pid, 0, ptr::from_ref(registers) as usize)
}

/// A request of ptrace(2) to a stopped tracee. `data` is an integer, or the address of what the
/// request reads or fills.
fn request(request: libc::c_uint, pid: pid_t, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers give addresses of live values of the size that the request fills:
    // `registers`, `set_registers` and the array of `system_call`, whose size is `addr`. Other
    // requests take integers.
    check(unsafe { libc::ptrace(request, pid, addr as *mut c_void, data as *mut c_void) }).map(drop)
}

fn trace_me() -> io::Result<()> {
    // SAFETY: the request takes no arguments.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }).map(drop)
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Ignores the error for a tracee that was killed in the meantime: the tracer waits for it later.
fn ignore_no_such_process(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn kill_group(pid: pid_t) {
    // SAFETY: kill(2) accesses no memory. The group may not exist any more.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
}
