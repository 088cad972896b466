// Package microsoft lets package sqlserver connect to Microsoft SQL Server and Azure SQL,
// through github.com/microsoft/go-mssqldb. A program imports it only for that effect:
//
//	import _ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
//
// Programs that use PostgreSQL do not import it, and do not depend on go-mssqldb. The
// dialect is experimental: it also needs [Config.Experimental].
//
// [Config.Experimental]: https://pkg.go.dev/github.com/reprise-go/reprise/transport/sqlserver#Config
package microsoft

import (
	"errors"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
)

func init() { microsoftdriver.Register(driver{}) }

// driver is go-mssqldb.
type driver struct{}

// Parse implements microsoftdriver.Driver.
func (driver) Parse(url string) (*microsoftdriver.Server, error) {
	parsed, err := msdsn.Parse(url)
	if err != nil {
		return nil, err
	}
	return &microsoftdriver.Server{
		Host:      parsed.Host,
		Port:      int(parsed.Port),
		Database:  parsed.Database,
		Encrypts:  parsed.Encryption == msdsn.EncryptionRequired || parsed.Encryption == msdsn.EncryptionStrict,
		TLS:       parsed.TLSConfig,
		Connector: mssql.NewConnectorConfig(parsed),
	}, nil
}

// Text implements microsoftdriver.Driver.
func (driver) Text(text string) any { return mssql.NVarCharMax(text) }

// Errors implements microsoftdriver.Driver.
func (driver) Errors(err error) []microsoftdriver.Error {
	last, ok := errors.AsType[mssql.Error](err)
	if !ok {
		return nil
	}
	all := last.All
	if len(all) == 0 {
		all = []mssql.Error{last}
	}
	reported := make([]microsoftdriver.Error, len(all))
	for i, one := range all {
		reported[i] = microsoftdriver.Error{Number: one.Number, Class: one.Class, Message: one.Message}
	}
	return reported
}

// Severed implements microsoftdriver.Driver.
func (driver) Severed(err error) bool {
	_, severed := errors.AsType[mssql.ServerError](err)
	return severed
}
