package sqlserver_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

func TestDescribe_HostAndPortAlone(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]core.TransportInfo{
		"postgres://app:hunter2@h/queues":                {System: "postgresql", ServerAddress: "h", ServerPort: 5432},
		"postgres://app:hunter2@h:5433/queues":           {System: "postgresql", ServerAddress: "h", ServerPort: 5433},
		"postgres:///queues?host=/run/db&user=app":       {System: "postgresql", ServerAddress: "/run/db"},
		"sqlserver://app:hunter2@h:1434?database=queues": {System: "microsoft.sql_server", ServerAddress: "h", ServerPort: 1434},
	} {
		transport, err := sqlserver.New(sqlserver.Config{URL: url, Experimental: experimentalIf(want.System)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		if got := transport.Describe(); got != want {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}

func experimentalIf(system string) sqlserver.Experiment {
	if system == "microsoft.sql_server" {
		return sqlserver.MicrosoftSQLServer
	}
	return ""
}
