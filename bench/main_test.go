package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sharedServers are servers that tests share, so that each of them is started once. A test locks the one that it
// uses: only one scenario at a time finds its queues empty.
type sharedServers struct {
	sync.Mutex

	systems
}

var (
	postgresTests = &sharedServers{systems: systems{postgres: postgresSystem{forgetful: true}}}
	rabbitTests   = &sharedServers{}
	sqsTests      = &sharedServers{}
	asbTests      = &sharedServers{}
)

func TestMain(m *testing.M) {
	serveSQS() // if this process is such a server
	code := m.Run()
	if err := errors.Join(postgresTests.close(), rabbitTests.close(), sqsTests.close(), asbTests.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Every scenario runs, checks that nothing was lost, and has something to say.
// The figures mean nothing.
func TestScenarios_Run(t *testing.T) {
	groups := map[string]*sharedServers{"inmemory": {}, "postgres": postgresTests, "rabbitmq": rabbitTests, "sqs": sqsTests, "asb": asbTests}
	for _, s := range new(systems).scenarios() {
		if system, _, _ := strings.Cut(s.name, "-"); groups[system] == nil {
			t.Errorf("the scenario %s is of no system that is tested", s.name)
		}
	}
	for system, shared := range groups {
		t.Run(system, func(t *testing.T) {
			if testing.Short() && system != "inmemory" {
				t.Skip("servers: not in short runs")
			}
			t.Parallel()
			shared.Lock()
			defer shared.Unlock()
			for _, s := range shared.scenarios() {
				if strings.HasPrefix(s.name, system+"-") {
					t.Run(s.name, func(t *testing.T) { hasSomethingToSay(t, s) })
				}
			}
		})
	}
}

// hasSomethingToSay runs a scenario and checks its tables.
func hasSomethingToSay(t *testing.T, s scenario) {
	t.Helper()
	tables, err := s.run(t.Context(), load{messages: 30, repetitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) == 0 {
		t.Fatal("there is no table")
	}
	pictures := 0
	for _, table := range tables {
		if table.title == "" || len(table.rows) == 0 {
			t.Errorf("table %q has %d rows", table.title, len(table.rows))
		}
		for _, row := range table.rows {
			if len(row) != len(table.head) {
				t.Errorf("table %q: the row %q does not fit the head %q", table.title, row, table.head)
			}
		}
		if table.growth != nil {
			pictures++
			drawnAsInTheTable(t, table)
		}
	}
	if pictures > 1 || s.plotted != (pictures == 1) {
		t.Errorf("there are %d plots; it is %v that it is plotted", pictures, s.plotted)
	}
}

// drawnAsInTheTable checks that each line of a table's plot has a point for each row, at
// the figures of the row.
func drawnAsInTheTable(t *testing.T, table table) {
	t.Helper()
	for _, line := range table.growth.lines {
		column := slices.Index(table.head, line.name)
		if column < 0 || len(line.points) != len(table.rows) {
			t.Errorf("the line %q has %d points; the table has %d rows under %q", line.name, len(line.points), len(table.rows), table.head)
			continue
		}
		for i, row := range table.rows {
			if at := line.points[i]; number(at.X) != row[0] || number(at.Y) != row[column] {
				t.Errorf("the line %q goes through %v in the row %q", line.name, at, row)
			}
		}
	}
	drawn := 0 // as columns; the others are ratios
	for _, head := range table.head[1:] {
		if !strings.HasPrefix(head, "× ") {
			drawn++
		}
	}
	if len(table.growth.lines) != drawn {
		t.Errorf("there are %d lines for %d columns", len(table.growth.lines), drawn)
	}
	if _, err := table.growth.svg(table.title); err != nil {
		t.Error(err)
	}
}

func TestRun_WritesPicturesBesideTheDocument(t *testing.T) {
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	out := filepath.Join(dir, "all figures.md")
	args := []string{"-scenario", "inmemory-b*,inmemory-concurrency", "-messages", "20", "-repetitions", "1", "-out", out}
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inmemory-body.svg", "inmemory-concurrency.svg"} {
		if picture, err := os.ReadFile(filepath.Join(dir, "all figures", name)); err != nil || !bytes.Contains(picture, []byte("<svg")) {
			t.Errorf("%s: %v, %.50s", name, err, picture)
		}
		if want := "](all%20figures/" + name + ")\n"; !strings.Contains(string(document), want) {
			t.Errorf("the document does not contain %q:\n%s", want, document)
		}
	}
	if !strings.Contains(string(document), "\n![Plot of messages/s by concurrency, both axes are logarithmic. Reprise: ") {
		t.Errorf("the document does not say what the plot shows:\n%s", document)
	}
}

func TestChoose(t *testing.T) {
	every := func(yes func(name string) bool) (names []string) {
		for _, s := range new(systems).scenarios() {
			if yes(s.name) {
				names = append(names, s.name)
			}
		}
		return names
	}
	for names, want := range map[string][]string{
		"all":                              every(func(string) bool { return true }),
		"inmemory-body":                    {"inmemory-body"},
		"inmemory-body,inmemory-transport": {"inmemory-transport", "inmemory-body"},
		"postgres-*":                       every(func(name string) bool { return strings.HasPrefix(name, "postgres-") }),
		"*-body,inmemory-body":             every(func(name string) bool { return strings.HasSuffix(name, "-body") }),
	} {
		chosen, err := choose(new(systems).scenarios(), names)
		var got []string
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q chooses %q (%v), want %q", names, got, err, want)
		}
	}
}

func TestRun_WritesTheDocument(t *testing.T) {
	var stdout, stderr bytes.Buffer
	out := filepath.Join(t.TempDir(), "performance.md")
	args := []string{"-scenario", "inmemory-transport", "-messages", "20", "-repetitions", "1", "-date", "2001-02-03", "-out", out}
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- Date: 2001-02-03\n",
		"go run ./bench -scenario inmemory-transport -messages 20 -repetitions 1",
		"## In memory, through Transport.Send",
		"| " + retryWatermill + " |",
	} {
		if !strings.Contains(string(document), want) {
			t.Errorf("the document does not contain %q:\n%s", want, document)
		}
	}
	if !strings.Contains(stdout.String(), "2001-02-03") || !strings.Contains(stdout.String(), retryWatermill) {
		t.Errorf("the text is:\n%s", &stdout)
	}
}

func TestRun_WritesProfiles(t *testing.T) {
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	cpu, allocs := filepath.Join(dir, "cpu"), filepath.Join(dir, "allocs")
	args := []string{"-scenario", "inmemory-transport", "-messages", "20", "-repetitions", "1", "-cpuprofile", cpu, "-memprofile", allocs}
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{cpu, allocs} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v, %v", name, info, err)
		}
	}
}

func TestRun_ListsScenarios(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-list"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, s := range new(systems).scenarios() {
		if !strings.Contains(stdout.String(), s.name+" ") {
			t.Errorf("%s is not in the list:\n%s", s.name, &stdout)
		}
	}
}

func TestRun_Refuses(t *testing.T) {
	for name, args := range map[string][]string{
		"an unknown scenario":       {"-scenario", "inmemory-body,no-such-thing"},
		"a pattern of nothing":      {"-scenario", "inmemory-*,nothing-*"},
		"a broken pattern":          {"-scenario", "inmemory-["},
		"an -out that is no .md":    {"-scenario", "inmemory-body", "-messages", "1", "-repetitions", "1", "-out", filepath.Join(t.TempDir(), "performance")},
		"an unknown flag":           {"-nonsense"},
		"an argument":               {"inmemory-body"},
		"no messages":               {"-messages", "0"},
		"no repetitions":            {"-repetitions", "0"},
		"a profile it cannot write": {"-cpuprofile", filepath.Join(t.TempDir(), "missing", "cpu")},
	} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), args, &stdout, &stderr); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestScenarios_NamesAreUnique(t *testing.T) {
	seen := map[string]bool{"all": true}
	for _, s := range new(systems).scenarios() {
		if s.name == "" || strings.ContainsAny(s.name, ", ") || seen[s.name] {
			t.Errorf("the name %q is empty, taken, or cannot be a flag's value", s.name)
		}
		seen[s.name] = true
	}
}

func TestCPUModel(t *testing.T) {
	for info, want := range map[string]string{
		"processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n": "AMD EPYC",
		"": "unknown processor",
	} {
		if got := cpuModel(info); got != want {
			t.Errorf("cpuModel(%q) is %q, want %q", info, got, want)
		}
	}
}
