//! The five fields of a schedule as sets of numbers.

use time::OffsetDateTime;

/// Sets as bits: bit 5 of `minutes` is set when minute 5 is in it.
#[derive(Clone, Debug)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both fields of days are restricted, so that a day needs to be in one of them only.
    either_day: bool,
}

/// What a field may hold.
struct Bounds {
    least: u32,
    most: u32,
    /// Names for the numbers from `least` on.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds {
    least: 0,
    most: 59,
    names: &[],
};
const HOURS: Bounds = Bounds {
    least: 0,
    most: 23,
    names: &[],
};
const DAYS: Bounds = Bounds {
    least: 1,
    most: 31,
    names: &[],
};
const MONTHS: Bounds = Bounds {
    least: 1,
    most: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAYS: Bounds = Bounds {
    least: 0,
    most: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl Fields {
    pub fn parse(text: &str) -> Result<Fields, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = words[..] else {
            let (count, all) = (words.len(), words.join(" "));
            return Err(format!("expected exactly 5 fields, found {count}: [{all}]"));
        };
        let (minutes, _) = set(minutes, &MINUTES)?;
        let (hours, _) = set(hours, &HOURS)?;
        let (days, any_day) = set(days, &DAYS)?;
        let (months, _) = set(months, &MONTHS)?;
        let (weekdays, any_weekday) = set(weekdays, &WEEKDAYS)?;
        Ok(Fields {
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day: !any_day && !any_weekday,
        })
    }

    pub fn has_minute(&self, minute: i64) -> bool {
        self.minutes >> minute & 1 == 1
    }

    pub fn has_hour(&self, hour: i64) -> bool {
        self.hours >> hour & 1 == 1
    }

    /// Whether the day of a local time, in seconds, is in the schedule.
    pub fn has_day(&self, local: i64) -> bool {
        let Ok(date) = OffsetDateTime::from_unix_timestamp(local) else {
            return false;
        };
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().number_days_from_sunday() & 1 == 1;
        let month = self.months >> u8::from(date.month()) & 1 == 1;
        month
            && if self.either_day {
                day || weekday
            } else {
                day && weekday
            }
    }
}

/// The numbers of a list of ranges, and whether it says "any".
fn set(text: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let (mut bits, mut any) = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (more, all) = range(part, bounds)?;
        bits |= more;
        any |= all;
    }
    Ok((bits, any))
}

/// `*`, `5`, `5-9`, each with an optional step.
fn range(text: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let halves: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = halves[0].split('-').collect();
    let all = matches!(ends[0], "*" | "?");
    let (first, mut last) = match ends[..] {
        _ if all => (bounds.least, bounds.most),
        [one] => (number(one, bounds)?, number(one, bounds)?),
        [first, last] => (number(first, bounds)?, number(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match halves[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                last = bounds.most;
            }
            number(step, &MINUTES)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if first < bounds.least {
        return Err(format!(
            "beginning of range ({first}) below minimum ({}): {text}",
            bounds.least
        ));
    }
    if last > bounds.most {
        return Err(format!("end of range ({last}) above maximum ({}): {text}", bounds.most));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let bits = (first..=last)
        .step_by(step as usize)
        .fold(0, |bits, number| bits | 1 << number);
    Ok((bits, all && step == 1))
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let name = text.to_lowercase();
    if let Some(position) = bounds.names.iter().position(|known| *known == name) {
        return Ok(bounds.least + position as u32);
    }
    let number: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}
