use std::time::{Duration, UNIX_EPOCH};

use super::{ChatTemplate, calendar};

#[test]
fn dates_equal_pythons() {
    // datetime.fromtimestamp(SECONDS, timezone.utc).strftime(..)
    const FORMAT: &str = "%d %b %Y|%A %B %-d, %y|%H:%M:%S %I %p|%F %T %a %m %%";
    for (seconds, expected) in [
        (0, "01 Jan 1970|Thursday January 1, 70|00:00:00 12 AM|1970-01-01 00:00:00 Thu 01 %"),
        (951_827_696, "29 Feb 2000|Tuesday February 29, 00|12:34:56 12 PM|2000-02-29 12:34:56 Tue 02 %"),
        (1_735_689_599, "31 Dec 2024|Tuesday December 31, 24|23:59:59 11 PM|2024-12-31 23:59:59 Tue 12 %"),
    ] {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(calendar::written(time, FORMAT).expect("a date"), expected);
    }
    assert!(calendar::written(UNIX_EPOCH, "%Q").is_err());
    let template = ChatTemplate::new("{{ strftime_now('%d %b %Y') }}", &[]).expect("compiled");
    assert_eq!(template.render_at(&template.source, &[], false, UNIX_EPOCH).expect("text"), "01 Jan 1970");
}
