import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.calcite.config.Lex;
import org.apache.calcite.sql.SqlNode;
import org.apache.calcite.sql.parser.SqlParser;
import org.apache.flink.sql.parser.impl.FlinkSqlParserImpl;
import org.apache.flink.sql.parser.validate.FlinkSqlConformance;

/** Parses a file as Flink's planner does, and prints the kind of each statement. */
public class Parse {
    public static void main(String[] args) throws Exception {
        var config = SqlParser.config()
            .withParserFactory(FlinkSqlParserImpl.FACTORY)
            .withConformance(FlinkSqlConformance.DEFAULT)
            .withLex(Lex.JAVA);
        String text = Files.readString(Path.of(args[0]));
        for (SqlNode statement : SqlParser.create(text, config).parseStmtList())
            System.out.println(statement.getKind());
    }
}
