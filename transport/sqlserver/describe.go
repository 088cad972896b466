package sqlserver

import (
	"strings"

	"github.com/reprise-go/reprise/core"
)

// describe returns the database's description for telemetry: no user, and only host and
// port of the URL.
func (c *Config) describe(db database, d dialect) core.TransportInfo {
	info := core.TransportInfo{System: "microsoft.sql_server"}
	if _, ok := d.(postgres); ok {
		info.System = "postgresql"
	}
	switch db := db.(type) {
	case *pgxDatabase:
		of := &db.connections.Config().ConnConfig.Config
		info.ServerAddress, info.ServerPort = of.Host, int(of.Port)
		if strings.HasPrefix(of.Host, "/") { // a Unix domain socket
			info.ServerPort = 0
		}
	case *sqlDatabase:
		if db.server != nil {
			info.ServerAddress, info.ServerPort = db.server.Host, db.server.Port
		}
	}
	return info
}
