package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
			if yes(s.Name) {
				names = append(names, s.Name)
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
			got = append(got, s.Name)
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
		"| Watermill + Retry |",
	} {
		if !strings.Contains(string(document), want) {
			t.Errorf("the document does not contain %q:\n%s", want, document)
		}
	}
	if !strings.Contains(stdout.String(), "2001-02-03") || !strings.Contains(stdout.String(), "Watermill + Retry") {
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
		if !strings.Contains(stdout.String(), s.Name+" ") {
			t.Errorf("%s is not in the list:\n%s", s.Name, &stdout)
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
		if s.Name == "" || strings.ContainsAny(s.Name, ", ") || seen[s.Name] {
			t.Errorf("the name %q is empty, taken, or cannot be a flag's value", s.Name)
		}
		seen[s.Name] = true
	}
}
