//! Talk, on stderr.

/// As `eprintln!`, but whether anybody hears it changes nothing: a full disk under `2>log` must not end the work.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}
