#include "harness/cli/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "harness/cli/known_answer.h"
#include "harness/io/files.h"
#include "harness/io/known_cases.h"
#include "harness/io/nearest.h"
#include "harness/io/spec_library.h"
#include "harness/io/yaml_mapping.h"
#include "properties/generators/hazards.h"
#include "properties/law.h"

namespace samebits::harness {
namespace {

constexpr std::uint64_t kMaxBytes = 1'000'000;

std::optional<std::chrono::sys_days> parse_date(const std::string& text) {
  int year = 0;
  unsigned month = 0, day = 0;
  char rest = 0;
  if (text.size() != 10 || std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &rest) != 3) return {};
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!date.ok()) return {};
  return std::chrono::sys_days(date);
}

void require_one_of(const YamlValue& value, const std::vector<std::string>& names) {
  const std::string text = value.text();
  if (std::find(names.begin(), names.end(), text) != names.end()) return;
  value.fail(fmt::format("found \"{}\"; {}", text, suggest_names(text, names)));
}

// A path needs no file here: a ledger may serve several checkouts.
void require_spec(const YamlValue& value) {
  const std::string text = value.text();
  if (text.find('/') != std::string::npos || text.ends_with(".yaml")) return;
  std::vector<std::string> names;
  for (const BuiltinSpec& spec : builtin_specs()) names.emplace_back(spec.name);
  require_one_of(value, names);
}

LedgerEntry entry_of(const YamlValue& item) {
  const YamlMapping fields(item,
                           {"mode", "router", "version", "law", "spec", "hazard", "known_case", "link", "expires"});
  LedgerEntry entry;
  require_one_of(fields.at("mode"), {"tolerate", "quarantine"});
  const bool tolerate = fields.at("mode").text() == "tolerate";
  entry.mode = tolerate ? LedgerEntry::Mode::kTolerate : LedgerEntry::Mode::kQuarantine;
  entry.router = fields.at("router").text();
  if (entry.router.empty())
    fields.at("router").fail("found nothing; allowed: the name that a router describes itself with");
  entry.link = fields.at("link").text();
  if (entry.link.empty()) fields.at("link").fail("found nothing; allowed: where the fault is tracked");
  if (fields.has("version")) entry.version = fields.at("version").text();
  if (fields.has("spec")) {
    require_spec(fields.at("spec"));
    entry.spec = fields.at("spec").text();
  }
  if (fields.has("law")) {
    require_one_of(fields.at("law"), law_names());
    entry.law = fields.at("law").text();
  }
  if (fields.has("hazard")) {
    std::vector<std::string> names;
    for (const properties::Hazard& hazard : properties::all_hazards()) names.emplace_back(hazard.label);
    require_one_of(fields.at("hazard"), names);
    entry.hazard = fields.at("hazard").text();
  }
  if (fields.has("known_case")) {
    std::vector<std::string> names;
    for (const BuiltinCase& known : builtin_cases()) names.emplace_back(known.name);
    require_one_of(fields.at("known_case"), names);
    entry.known = fields.at("known_case").text();
  }
  if (fields.has("expires")) {
    entry.expires = fields.at("expires").text();
    if (!parse_date(entry.expires)) fields.at("expires").wrong("a date YYYY-MM-DD, the last day on which it counts");
  }
  if (tolerate && entry.law.empty()) item.fail("a fault that is tolerated needs its law");
  if (entry.law.empty() && entry.spec.empty() && entry.hazard.empty() && entry.known.empty()) {
    item.fail("would keep every case from being run; name a law, spec, hazard or known_case");
  }
  return entry;
}

bool covers(const LedgerEntry& entry, const CaseFile& file, const std::string& known_name) {
  return (entry.spec.empty() || entry.spec == file.c.spec_name) &&
         (entry.hazard.empty() || entry.hazard == file.c.description.hazard) &&
         (entry.known.empty() || entry.known == known_name);
}

}  // namespace

std::string LedgerEntry::subject() const {
  std::string where;
  const auto add = [&](const char* label, const std::string& name) {
    if (!name.empty()) where += fmt::format("{}{} {}", where.empty() ? "" : ", ", label, name);
  };
  add("spec", spec);
  add("hazard", hazard);
  add("known case", known);
  if (law.empty()) return "cases of " + where;
  return where.empty() ? law : law + " on " + where;
}

std::vector<LedgerEntry> read_ledger(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMaxBytes), name = path.string();
  return with_yaml_errors(name, [&] {
    const YamlMapping root(parse_yaml(text, name), {"samebits_ledger", "entries"});
    root.at("samebits_ledger").integer(1, 1);
    std::vector<LedgerEntry> entries;
    for (const YamlValue& item : root.at("entries").items()) {
      entries.push_back(entry_of(item));
      const LedgerEntry& last = entries.back();
      for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
        const LedgerEntry& other = entries[i];
        if (other.router == last.router && other.version == last.version && other.subject() == last.subject()) {
          item.fail(fmt::format("{} of {}: found twice; allowed: once", last.subject(), last.router));
        }
      }
    }
    return entries;
  });
}

std::vector<LedgerEntry> read_ledger_option(const std::string& path) {
  return path.empty() ? std::vector<LedgerEntry>{} : read_ledger(path);
}

std::chrono::sys_days today() {
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
}

Ledger::Ledger(const std::vector<LedgerEntry>& entries, const properties::Claims& claims, std::chrono::sys_days today) {
  for (const LedgerEntry& entry : entries) {
    if (entry.router != claims.name || (!entry.version.empty() && entry.version != claims.version)) continue;
    const auto last = parse_date(entry.expires);
    lines_.push_back({entry, last && today > *last, 0, 0, ""});
  }
}

bool Ledger::quarantines(const CaseFile& file, const std::string& known_name) {
  for (Line& line : lines_) {
    const bool whole_case = line.entry.mode == LedgerEntry::Mode::kQuarantine && line.entry.law.empty();
    if (line.expired || !whole_case || !covers(line.entry, file, known_name)) continue;
    ++line.cases;
    return true;
  }
  return false;
}

Ledger::Treatment Ledger::treat(const std::string& law, const CaseFile& file, const std::string& known_name,
                                const properties::LawOutcome& outcome) {
  for (Line& line : lines_) {
    if (line.expired || line.entry.law != law || !covers(line.entry, file, known_name)) continue;
    if (line.entry.mode == LedgerEntry::Mode::kQuarantine) {
      ++line.cases;
      return Treatment::kDrop;
    }
    if (outcome.relevant > 0 || outcome.violation) ++line.cases;
    if (!outcome.violation) return Treatment::kJudge;
    if (line.findings++ == 0) line.first = outcome.violation->summary;
    return Treatment::kTolerate;
  }
  return Treatment::kJudge;
}

std::vector<LedgerOutcome> Ledger::outcomes() const {
  using State = LedgerOutcome::State;
  std::vector<LedgerOutcome> outcomes;
  for (const Line& line : lines_) {
    const bool tolerate = line.entry.mode == LedgerEntry::Mode::kTolerate;
    const State state = line.expired        ? State::kExpired
                        : line.cases == 0   ? State::kNotMet
                        : !tolerate         ? State::kQuarantined
                        : line.findings > 0 ? State::kFound
                                            : State::kPassesNow;
    outcomes.push_back({line.entry.subject(), line.entry.link, tolerate ? "tolerate" : "quarantine", line.entry.expires,
                        state, line.cases, line.findings, line.first});
  }
  return outcomes;
}

std::string Ledger::quarantine_of(const std::string& law) const {
  for (const Line& line : lines_) {
    if (line.entry.mode == LedgerEntry::Mode::kQuarantine && line.entry.law == law && line.cases > 0) {
      return line.entry.link;
    }
  }
  return "";
}

}  // namespace samebits::harness
