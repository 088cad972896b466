package sqlserver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/transport/sqlserver"
	_ "github.com/reprise-go/reprise/transport/sqlserver/microsoft" // the driver, go-mssqldb
)

// Microsoft SQL Server, which a program gets only by saying that it is experimental, and by
// importing its driver.
func ExampleNew_microsoftSQLServer() {
	ctx := context.Background()
	// snippet: microsoft
	transport, err := sqlserver.New(sqlserver.Config{
		URL:          "sqlserver://user:password@host?database=shop",
		Experimental: sqlserver.MicrosoftSQLServer,
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	fmt.Println(transport)
	// Output: sqlserver (Microsoft SQL Server, schema "dbo")
}
