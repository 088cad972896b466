module github.com/reprise-go/reprise/internal/foreignsuites

go 1.26.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/reprise-go/reprise v0.0.0
	github.com/reprise-go/reprise/transport/rabbitmq v0.0.0
	github.com/reprise-go/reprise/transport/sqlserver v0.0.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/rabbitmq/amqp091-go v1.16.0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace (
	github.com/reprise-go/reprise => ../..
	github.com/reprise-go/reprise/transport/rabbitmq => ../../transport/rabbitmq
	github.com/reprise-go/reprise/transport/sqlserver => ../../transport/sqlserver
)
