// Serves SQS and SNS on a port of 127.0.0.1, with everything in memory, until SIGTERM. fauxqs' own program listens on all addresses.
import { startFauxqs } from "fauxqs";

const server = await startFauxqs({ port: Number(process.argv[1]), host: "127.0.0.1", logger: false });
process.on("SIGTERM", () => server.stop().then(() => process.exit(0)));
