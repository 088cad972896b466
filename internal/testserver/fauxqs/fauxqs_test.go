//go:build darwin || linux

package fauxqs

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStart_AnswersUntilStop(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node.js: not in short runs")
	}
	t.Parallel()
	s := StartFor(t)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(s.URL() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("it answers %s", response.Status)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if response, err := client.Get(s.URL() + "/health"); err == nil {
		response.Body.Close()
		t.Error("a stopped server answers")
	}
}

func TestStart_MissingInstallationIsExplained(t *testing.T) {
	other := t.TempDir()
	if err := os.MkdirAll(filepath.Join(other, "node_modules", "fauxqs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "node_modules", "fauxqs", "package.json"), []byte(`{"version":"1.9.2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for directory, want := range map[string]string{
		"relative":  "absolute",
		t.TempDir(): "run scripts/servers",
		other:       "has fauxqs 1.9.2, not " + Version,
	} {
		t.Setenv(directoryVariable, directory)
		if _, err := Start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", directory, err, want)
		}
	}
}

// Tests look for the version that npm installs.
func TestVersion_IsThatOfTheLockFile(t *testing.T) {
	text, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	if got := lock.Packages["node_modules/fauxqs"].Version; got != Version {
		t.Errorf("package-lock.json has fauxqs %s, want %s", got, Version)
	}
}
