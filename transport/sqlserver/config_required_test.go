package sqlserver_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

// An environment variable that is not set becomes an empty URL.
func TestConfig_URLIsRequired(t *testing.T) {
	t.Parallel()
	transport, err := sqlserver.Open("")
	if err == nil {
		_ = transport.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "Config.URL, which is also the argument of Open, is empty") {
		t.Errorf("Open returns %v, want an error that says what is empty", err)
	}
}
